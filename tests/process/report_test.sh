#!/usr/bin/env bash
# tutti report: a page for every model and for this machine, which needs nothing from anywhere and takes no
# text for markup; mistakes in one line; and in a browser, where there is one, what it answers to a mouse.
set -euo pipefail
bin=$TEST_BUILD_DIR
tutti=$bin/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

echo "== each model, and this machine"
"$tutti" topo models | awk '/^[a-z]/ { print $1 }' >names
[ "$(wc -l <names)" -ge 10 ]
while read -r model; do
  "$tutti" report --model "$model" -o "page_$model" >/dev/null
  for part in '<svg' 'id="findings"' 'id="bounds"' 'id="data"' '</html>'; do
    grep -qF "$part" "page_$model" || { echo "the page of $model has no $part"; exit 1; }
  done
done <names
"$tutti" report | grep -q '^machine.html: [0-9]* KiB'

echo "== a sick machine, with a sweep"
"$tutti" topo export --model hgx-h100 -o healthy.topo
sed -e '/host0\/gpu3 forward=48/ s/=48/=24/g; /host0\/gpu3 forward/ s/current=32x16/current=32x8/' \
  -e '/host0\/gpu6 forward=48/ s/forward=48/forward=24/' \
  -e '/^nvlink host0\/gpu5 host0\/nvswitch0 /d' healthy.topo >sick.topo
"$bin/perf/all_reduce_perf" --ranks 2 -b 8 -e 64K -f 8 -n 5 --bound -J sweep.json >/dev/null
# A file from elsewhere, whose texts would be markup.
sed -i 's|"command": "[^"]*"|"command": "</script><img src=http://example.org/x onerror=alert(1)>"|' sweep.json
"$tutti" report --from sick.topo --sweep sweep.json -o sick.html
grep -qF 'the PCI Express link has 8 of 16 lanes' sick.html
grep -qF 'data-node="host0/gpu5"' sick.html
grep -qF '&lt;/script&gt;&lt;img' sick.html
[ "$(grep -c '</script>' sick.html)" = 2 ] # The page's own two.
if grep -oE '<[a-zA-Z][^>]* (src|href)="?(https?:)?//[^" >]*|url\([^)]*' sick.html; then
  echo "these would be loaded from elsewhere"
  exit 1
fi

echo "== mistakes"
mistake() { # EXIT WORDS ARGUMENT...: one line, by that exit code, with these words
  local wanted=$1 words=$2 code=0
  shift 2
  "$tutti" report "$@" >out 2>err || code=$?
  if [ "$code" != "$wanted" ] || [ "$(wc -l <err)" != 1 ] || ! grep -qF -- "$words" err; then
    echo "tutti report $*: $code, not $wanted with '$words':"
    cat err
    exit 1
  fi
}
mistake 2 'nowhere/x.html' -o nowhere/x.html
mistake 2 'give a file' --from -
mistake 2 'missing.json: No such file' --sweep missing.json
mistake 2 '.: Is a directory' --sweep .
mistake 2 '/dev/zero: longer than 256 MiB' --sweep /dev/zero
TMPDIR=/nonexistent mistake 1 'no temporary folder' -o x.html
mistake 2 'no results are in it' --sweep healthy.topo
for text in '{"results":[1]}' '{"results":[{"bytes":"8"}]}' '{"results":[]}' \
  '{"results":[{"bytes":8,"out_of_place":{"time_us":1}}],"collective":7}'; do
  echo "$text" >odd.json
  mistake 2 odd.json --sweep odd.json
done
mistake 2 -- --ranks --ranks -3
mistake 2 'hgx-h100' --model hgx-h10O
[ ! -e x.html ]

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
  echo "skipped: the page in a browser: there is no chromium"
  exit 0
fi
echo "== with a mouse in $(basename "$browser")"
code=0
python3 "$TEST_SOURCE_DIR/tests/process/report_page.py" "$browser" sick.html "${REPORT_PICTURES:-.}" || code=$?
[ "$code" != 77 ] || echo "skipped: the page in a browser: $browser does not start here"
[ "$code" = 0 ] || [ "$code" = 77 ]
