#!/usr/bin/env bash
# A private PostgreSQL server for tests: postgres.sh start DIR | stop DIR | kill DIR
#
# start prints the URL of an empty database on a free port of localhost; DIR is made and kept, so
# that a server which was killed can be started again. As root the server runs as another user.
# Binaries: PATH, else those of the distribution's packages.
set -euo pipefail
action=$1 dir=$2

bin() {
  local found
  found=$(command -v "$1" || ls -d /usr/lib/postgresql/*/bin/"$1" /usr/pgsql-*/bin/"$1" 2>/dev/null | sort -V | tail -1)
  [ -n "$found" ] || { echo "postgres.sh: no $1: install PostgreSQL (Debian: apt-get install postgresql)" >&2; exit 3; }
  echo "$found"
}

as_user() {
  if [ "$(id -u)" = 0 ]; then
    local user=nobody
    id postgres >/dev/null 2>&1 && user=postgres
    setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups env HOME="$dir" "$@"
  else
    "$@"
  fi
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

start() {
  local postgres pg_ctl
  postgres=$(bin postgres) pg_ctl=$(bin pg_ctl)
  if [ ! -f "$dir/port" ]; then
    mkdir -p "$dir/data"
    [ "$(id -u)" != 0 ] || chown -R "$(id -u postgres 2>/dev/null || id -u nobody)" "$dir"
    as_user "$(bin initdb)" -D "$dir/data" -U tuner --auth=trust -E UTF8 --no-locale >"$dir/initdb.log" 2>&1 \
      || { cat "$dir/initdb.log" >&2; exit 1; }
    free_port >"$dir/port"
  fi
  for _ in $(seq 1 100); do  # what a killed server left behind may take a moment to go
    if as_user "$pg_ctl" -D "$dir/data" -w -t 60 -l "$dir/data/server.log" \
      -o "-p $(cat "$dir/port") -c listen_addresses=127.0.0.1 -c unix_socket_directories=$dir/data" \
      start >"$dir/start.log" 2>&1; then
      echo "postgresql://tuner@127.0.0.1:$(cat "$dir/port")/postgres"
      return
    fi
    sleep 0.2
  done
  cat "$dir/start.log" "$dir/data/server.log" >&2
  exit 1
}

case $action in
  start) start ;;
  stop) as_user "$(bin pg_ctl)" -D "$dir/data" -m immediate -w stop >/dev/null ;;
  kill) kill -9 "$(head -1 "$dir/data/postmaster.pid")" ;;
  *) echo "usage: postgres.sh start|stop|kill DIR" >&2; exit 2 ;;
esac
