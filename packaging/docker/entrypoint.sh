#!/bin/sh
# Refuses to work where it cannot see the processes that hold locks of sessions.
set -eu

# In a PID namespace of our own, the first process is this one or Docker's own init.
if [ "${BSD_ALONE:-}" != yes ]; then
    first=$(cat /proc/1/comm)
    if [ $$ = 1 ] || [ "$first" = docker-init ] || [ "$first" = tini ] || [ "$first" = catatonit ]; then
        cat >&2 <<'END'
Error: from here bsd cannot see whether the process that holds a session's lock is alive
Try: docker run --pid=host …, or --pid=container:GATEWAY; or -e BSD_ALONE=yes if no gateway
     uses these sessions
END
        exit 78
    fi
fi
exec bsd "$@"
