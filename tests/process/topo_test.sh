#!/usr/bin/env bash
# tutti topo as its users see it: every model shown, checked and explained, files there and back, and
# one line for what is wrong.
set -euo pipefail
tutti=$TEST_BUILD_DIR/tools/tutti
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { echo "FAILED: $*"; exit 1; }

echo "== this machine, whatever it is"
"$tutti" topo show >"$work/here"
"$tutti" topo check >"$work/check" || [ $? -le 2 ] || fail "check"
"$tutti" topo capture "$work/here.tar.gz"
"$tutti" topo show --from "$work/here.tar.gz" | grep -v ' NVML' >"$work/there"
grep -v ' NVML' "$work/here" | diff - "$work/there" || fail "a capture shows another machine"

echo "== models"
for model in dgx1-v100 hgx-h100 gb200-nvl72 mi300x pcie-8 cpu-2s hgx-h100:2; do
  "$tutti" topo show --model "$model" --svg "$work/picture.svg" >"$work/show" || fail "show $model"
  awk 'length($0) > 100 { print; exit 1 }' "$work/show" || fail "show $model: wider than 100 columns"
  python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$work/picture.svg"
  "$tutti" topo check --model "$model" >"$work/check" || { cat "$work/check"; fail "check $model"; }
  "$tutti" topo bound --model "$model" | grep '^all_gather .*exact' >/dev/null || fail "bound $model"
  "$tutti" topo embed --model "$model" | grep '^[0-9]* lanes* (.*) gathers* ' >/dev/null || fail "embed $model"
  "$tutti" topo export --model "$model" -o "$work/a.topo"
  "$tutti" topo export --from "$work/a.topo" -o "$work/b.topo"
  cmp "$work/a.topo" "$work/b.topo" || fail "$model: the text form does not come back"
  "$tutti" topo diff "$model" "$work/a.topo" >"$work/diff" || { cat "$work/diff"; fail "diff $model"; }
done
"$tutti" topo why gpu0 gpu5 --model dgx1-v100 | grep '^NVB' >/dev/null || fail "gpu0 and gpu5 of a DGX-1"
"$tutti" topo embed --model pcie-4 --json | python3 -c '
import json, sys
for lane in json.load(sys.stdin)["lanes"]:
    assert [sorted(tree)[0] for tree in lane["parents"]] == [-1] * 4, lane' || fail "trees as JSON"
"$tutti" topo show --model hgx-h100 --json | python3 -c 'import json, sys; json.load(sys.stdin)'

echo "== show: as nvidia-smi topo -m, once, sorted"
"$tutti" topo show --model hgx-h100 >"$work/show"
[ "$(grep -c '^gpu0 .* NV18 371t' "$work/show")" = 1 ] || { cat "$work/show"; fail "no NV18"; }
grep '^mlx5_0 .* X$' "$work/show" && fail "NICs are rows of the matrix"
grep -q '^  NODE ' "$work/show" || fail "no NODE"
"$tutti" topo export --model hgx-h100 |
  awk '/^gpu /{ gpus = $0 "\n" gpus; next } /^(internal|pcie|socket) / { printf "%s", gpus; gpus = "" } 1' |
  "$tutti" topo show --from - | grep -o '^gpu[0-9]' >"$work/order" || fail "standard input"
head -8 "$work/order" | sort -c || { cat "$work/order"; fail "GPUs are not sorted"; }
cat >"$work/virtual.xml" <<'XML'
<system version="1"><cpu numaid="0" arch="x86_64" vendor="GenuineIntel" modelid="143">
<pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="90"/></pci>
<pci busid="0000:02:00.0" class="0x020000" link_speed="16 GT/s" link_width="16"><nic><net name="mlx5_0" dev="1" speed="100000"/></nic></pci>
<nic><net name="veth0" dev="2" speed="10000"/><net name="veth1" dev="3" speed="10000"/></nic></cpu></system>
XML
"$tutti" topo show --from "$work/virtual.xml" >"$work/show"
grep -q 'and 2 interfaces on no PCI: veth0, veth1' "$work/show" || { cat "$work/show"; fail "virtual NICs"; }
[ "$("$tutti" topo show --from "$work/virtual.xml" --all | grep -c '^veth')" = 2 ] || fail "--all"

echo "== what people get wrong"
# refused WORDS ARGUMENT...: exit code 2, and one line on stderr with these words.
refused() {
  local words=$1 code=0
  shift
  "$tutti" topo "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" != 0 ] || fail "taken: $*"
  grep -qF -- "$words" "$work/err" || { cat "$work/err"; fail "does not say '$words': $*"; }
  [ "$(wc -l <"$work/err")" = 1 ] || { cat "$work/err"; fail "not one line: $*"; }
}
refused "hgx-h100" show --model hgx-h1000
refused "$work/none" show --from "$work/none"
echo '<graphs version="1"/>' >"$work/graph.xml"
refused "NCCL's graph file" show --from "$work/graph.xml"
sed 's/=[0-9.]*:table/=?/g' <("$tutti" topo export --model pcie-4) >"$work/unknown.topo"
printf '%s\n' 'tutti topology 1' 'host host0 index=0' 'numa host0/numa0 host=host0 index=0' >"$work/one.topo"
for command in bound embed; do
  refused "the machine has 1 NUMA node, and" "$command" --from "$work/one.topo"
  refused "one rank is on gpu0" "$command" gpu0 --model hgx-h100
done
refused "unknown bandwidth" bound --from "$work/unknown.topo"
[ ! -s "$work/out" ] || fail "a table's head before the error"
refused "choose 1 to" show --from "$work/virtual.xml:0"
refused "gpu99" why gpu99 gpu0 --model hgx-h100
refused "nccl_xml" export --model cpu-2s --format nothing
echo '<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" rank="0" sm="80"><nvlink target="0000:01:00.0" count="12" tclass="0x030200"/></gpu></pci></cpu></system>' >"$work/self.xml"
refused "self.xml:1" show --from "$work/self.xml"
head -c 700 "$TEST_SOURCE_DIR/CMakeLists.txt" >"$work/text"
refused "no known form" import "$work/text"
