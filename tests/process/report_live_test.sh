#!/usr/bin/env bash
# tutti report --live: answers on loopback, to those alone who know the path, and only questions; shows a job
# that runs, a rank that is stopped, and the end of both, in a browser where there is one; mistakes in one line.
set -euo pipefail
bin=$TEST_BUILD_DIR
tutti=$bin/tools/tutti
work=$(mktemp -d)
job=
server=
cleanup() {
  for pid in $job $server; do kill "$pid" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap cleanup EXIT
cd "$work"

# Of this job alone: others may run here.
"$tutti" report --live --only '<b>ranks</b>' >out 2>err &
server=$!
for _ in $(seq 600); do
  [ "$(wc -l <out)" -lt 2 ] || break
  kill -0 "$server" || { cat err; exit 1; }
  sleep 0.1
done
address=$(head -n 1 out)
port=${address#http://127.0.0.1:}
port=${port%%/*}

echo "== what it answers"
python3 - "$address" "$port" <<'PYTHON'
import http.client, json, socket, sys, time
from urllib.parse import urlsplit
address, port = sys.argv[1], int(sys.argv[2])
path = urlsplit(address).path
def ask(path, method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), answer.getheader("Content-Type")
code, page, kind = ask(path)
assert code == 200 and b"connect-src 'self'" in page and kind.startswith("text/html"), (code, kind)
code, status, kind = ask(path + "status")
assert code == 200 and kind == "application/json", (code, kind)
assert isinstance(json.loads(status)["communicators"], list), status
assert ask(path, Host=f"localhost:{port}")[0] == 200
for other in ("/", path[:-2] + "x/", path + "../status", "/status", "/" + "a" * 20000):
    assert ask(other)[0] in (404, 414, 431), (other, ask(other)[0])
for host in ("example.org", f"example.org:{port}", "127.0.0.1", ""):
    assert ask(path, Host=host)[0] == 403, host
for method in ("POST", "PUT", "DELETE", "OPTIONS"):
    assert ask(path, method)[0] == 405, method
    for body in (b"x", b"x" * 1000000):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Allow")) == (405, "GET, HEAD"), (method, len(body), answer.status)
code, body, _ = ask(path, "HEAD")
assert code == 200 and body == b"", (code, body)
# Malformed and unfinished requests do no harm.
silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
for one in silent:
    one.sendall(b"GET " + path.encode())
odd = socket.create_connection(("127.0.0.1", port))
odd.sendall(bytes(range(256)) * 8)
assert ask(path + "status")[0] == 200
# Those that stay idle do not keep the page from others for long.
many = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
end = time.monotonic() + 20
while True:
    try:
        assert ask(path + "status")[0] == 200
        break
    except (OSError, http.client.HTTPException):
        assert time.monotonic() < end, "idle connections keep the page"
        time.sleep(0.5)
PYTHON
# Loopback alone.
[ "$(ss -Hltn "sport = :$port" | awk '{ print $4 }')" = "127.0.0.1:$port" ]

echo "== mistakes"
mistake() { # WORDS ARGUMENT...: one line, with these words, and no page
  local words=$1 code=0
  shift
  "$tutti" report "$@" >said 2>wrong || code=$?
  if [ "$code" = 0 ] || [ "$(wc -l <wrong)" != 1 ] || ! grep -qF -- "$words" wrong || [ -s said ]; then
    echo "tutti report $*: $code, not '$words':"
    cat wrong said
    exit 1
  fi
}
mistake "port $port of 127.0.0.1: Address already in use" --live --port "$port"
mistake '--port' --port 8080
mistake '--live' --live -o page.html
mistake '--port' --live --port 65536

echo "== a job"
# The name of the job would be markup.
# shellcheck disable=SC2016 # For the shell that is started.
"$tutti" run -n 3 -- sh -c 'TUTTI_JOB="<b>ranks</b>" exec "$0" "$@"' "$bin/perf/all_reduce_perf" -b 256K -e 256K \
  -n 100000000 >job.out 2>&1 &
job=$!
python3 - "$address" <<'PYTHON' || { cat job.out; exit 1; }
import json, sys, time, urllib.request
def look():
    all = json.load(urllib.request.urlopen(sys.argv[1] + "status", timeout=20))["communicators"]
    return {rank["rank"]: rank for comm in all for rank in comm["here"] if comm["job"] == "<b>ranks</b>"}
end = time.monotonic() + 60
first = {}
while len(first) < 3 and time.monotonic() < end:
    first = look()
while (now := look()) and any(now[rank]["totals"]["bytes"] <= first[rank]["totals"]["bytes"] for rank in first):
    assert time.monotonic() < end, now
assert sorted(now) == [0, 1, 2] and all(rank["program"] == "all_reduce_perf" for rank in now.values()), now
PYTHON
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "skipped: the page in a browser: there is no chromium"
else
  code=0
  python3 "$TEST_SOURCE_DIR/tests/process/report_live_page.py" "$browser" "${REPORT_PICTURES:-.}" "$server" \
    "$job" "$address" || code=$?
  [ "$code" != 77 ] || echo "skipped: the page in a browser: $browser does not start here"
  [ "$code" = 0 ] || [ "$code" = 77 ] || { cat job.out; exit 1; }
fi
kill "$job" 2>/dev/null || true # The page's test has done that.
wait "$job" || true
job=

echo "== its end"
kill -INT "$server" 2>/dev/null || true # The page's test has done that.
wait "$server"
server=
[ ! -s err ] || { cat err; exit 1; }
[ "$(wc -l <out)" = 3 ]
