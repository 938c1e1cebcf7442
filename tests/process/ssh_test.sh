#!/usr/bin/env bash
# How `tutti run --hosts` calls ssh: it has to notice a host that vanishes, must not ask for a password, and
# gets the job's secret on its standard input only.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ssh" <<'SSH'
#!/usr/bin/env bash
# Instead of ssh: notes its words, leaves out the options and the host, and runs the command here.
echo "$*" >>"$(dirname "$0")/words"
while [[ $1 == -* ]]; do
  [ "$1" = -o ] && shift
  shift
done
shift
exec "$@"
SSH
chmod +x "$work/ssh"
# shellcheck disable=SC2016 # The rank expands it.
PATH=$work:$PATH "$TEST_BUILD_DIR/tools/tutti" run --hosts localhost:2 --no-prefix -- sh -c 'echo "secret $TUTTI_SECRET"' \
  >"$work/out" 2>"$work/err" || { cat "$work/out" "$work/err"; fail "the job fails"; }
secret=$(sed -n 's/^secret //p' "$work/out" | sort -u)
[ ${#secret} -ge 32 ] || fail "the ranks have no secret: '$secret'"
words=$(cat "$work/words")
for option in -T "-o BatchMode=yes" "-o ServerAliveInterval=5" "-o ServerAliveCountMax=3"; do
  [[ " $words " == *" $option "* ]] || fail "ssh is not called with $option: $words"
done
[[ $words != *"$secret"* ]] || fail "the secret is on the command line: $words"
