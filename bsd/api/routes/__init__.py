"""One small file per group of routes; `bsd.api.app` puts them together."""
