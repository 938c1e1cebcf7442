# shellcheck shell=bash disable=SC2154 # Variables are vm/run's.
# Sourced by vm/run: keeps Debian's kernel in $cache, ready to boot: vmlinuz, initrd, and below
# modules/ what it may load. Nothing is installed.

# What the first root needs: 9p and overlay file systems, and virtio's serial ports.
boot_modules="virtio_pci virtio_console 9pnet_virtio 9p overlay"
# What is taken from the package: all that these have, and what they need of it.
kept_modules=(arch/x86/crypto crypto lib net drivers/infiniband/core drivers/infiniband/sw
  drivers/virtio drivers/char drivers/net/veth.ko drivers/net/virtio_net.ko
  fs/9p fs/overlayfs fs/netfs fs/fscache)

static_busybox() { # One that needs no shared library.
  local one
  for one in /bin/busybox /usr/bin/busybox; do
    [[ -x $one ]] && ! ldd "$one" >/dev/null 2>&1 && { echo "$one"; return; }
  done
  return 1
}

missing_packages() {
  local pair list=""
  for pair in qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod modprobe:kmod ip:iproute2 \
    rdma:iproute2 apt-get:apt dpkg-deb:dpkg; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%:*}" >/dev/null || list+=" ${pair#*:}"
  done
  static_busybox >/dev/null || list+=" busybox-static"
  compgen -G '/usr/lib/*/libibverbs/librxe-rdmav*.so' >/dev/null || list+=" ibverbs-providers"
  printf '%s' "$list"
}

kernel_package() { # name=version of the kernel that the archive has now.
  local name
  name=$(apt-cache depends --important linux-image-amd64 2>/dev/null |
    sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1)
  [[ $name ]] || return 1
  printf '%s=%s\n' "$name" "$(apt-cache show --no-all-versions "$name" |
    sed -n 's/^Version: //p' | head -n 1)"
}

fetch_kernel() { # Prints the file.
  local package files
  package=$(kernel_package) || return
  say "fetching ${package%%=*} (once)"
  (cd "$tmp" && apt-get download -q "$package" >apt.log 2>&1) || return
  files=("$tmp"/linux-image-*.deb)
  echo "${files[0]}"
}

unpack_kernel() { # FILE FOLDER
  local release at image
  mkdir -p "$2/tree" || return
  dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2/tree" --wildcards './boot/vmlinuz-*' \
    './lib/modules/*/modules.*' "${kept_modules[@]/#/./lib/modules/*/kernel/}" 2>/dev/null
  image=("$2"/tree/boot/vmlinuz-*)
  [[ -f ${image[0]} ]] || return # What is missing of the others, modprobe says.
  release=${image[0]##*/vmlinuz-}
  echo "$release" >"$2/release"
  mv "${image[0]}" "$2/vmlinuz" && depmod -b "$2/tree" "$release" || return
  ln -s "tree/lib/modules/$release" "$2/modules"
  # Unpacked here the kernel starts two seconds sooner; qemu takes it either way.
  at=$(LC_ALL=C grep -abom1 $'\xfd7zXZ' "$2/vmlinuz" | head -n 1 | cut -d: -f1)
  if [[ $at ]] && command -v xz >/dev/null; then
    tail -c "+$((at + 1))" "$2/vmlinuz" | xz -dc --single-stream >"$2/vmlinux" 2>/dev/null
    if [[ $(head -c 4 "$2/vmlinux") == $'\x7fELF' ]]; then mv "$2/vmlinux" "$2/vmlinuz"; else rm -f "$2/vmlinux"; fi
  fi
}

build_initrd() { # FOLDER
  local root=$1/initrd.d release kind module
  release=$(<"$1/release")
  mkdir -p "$root"/{bin,lib,proc,sys,dev,lower,rw} || return
  cp "$(static_busybox)" "$root/bin/busybox" || return
  : >"$root/modules.list"
  for module in $boot_modules; do
    modprobe -d "$1/tree" -C /dev/null -S "$release" --show-depends "$module" || return
  done 2>/dev/null | awk '!seen[$0]++' >"$1/needed"
  while read -r kind module; do
    [[ $kind == insmod ]] || continue # "builtin" needs nothing.
    cp "${module%% *}" "$root/lib/" && basename "${module%% *}" >>"$root/modules.list" || return
  done <"$1/needed"
  cp "$here/initrd.sh" "$root/init" && chmod 755 "$root/init" || return
  (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0) >"$1/initrd" && rm -rf "$root"
}

# Sets `kernel`: one that is kept, else the archive's, unpacked. Several runs may come at once.
prepare_kernel() {
  local file part
  mkdir -p "$cache" || fail "cannot make $cache"
  exec 9>"$cache/lock"
  flock -w 600 9 || fail "cannot lock $cache"
  # What it was made by: a change of this file or of the first program makes it anew.
  kernel=$cache/$(cat "$here/kernel.sh" "$here/initrd.sh" | sha256sum | head -c 12)
  if [[ ! -f $kernel/complete ]]; then
    file=$(fetch_kernel) || { apt-get update -q >"$tmp/apt.log" 2>&1; file=$(fetch_kernel); } ||
      cannot "cannot fetch Debian's linux-image-amd64: $(tail -n 1 "$tmp/apt.log")"
    part=$(mktemp -d "$cache/part.XXXXXX") || fail "cannot write in $cache"
    if ! { unpack_kernel "$file" "$part" && build_initrd "$part" && touch "$part/complete"; }; then
      rm -rf "$part"
      fail "cannot use the kernel package ${file##*/}"
    fi
    chmod 755 "$part"
    rm -rf "$kernel"
    mv "$part" "$kernel" || fail "cannot fill $cache"
    rm -f "$file"
  fi
  exec 9>&-
}
