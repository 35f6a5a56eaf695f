"""Placeholder."""
from fastapi import APIRouter
router = APIRouter(prefix="/api/memory", tags=["memory"])
