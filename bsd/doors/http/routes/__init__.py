"""One small file per group of routes; `bsd.doors.http.app` puts them together."""
