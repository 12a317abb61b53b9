#!/bin/bash
# Both container engines for the tests, on a bare Debian machine, as root: installs Podman and Docker, makes them work without
# systemd and without CAP_SYS_RESOURCE, and starts dockerd where none runs. May be run again; every step is bounded. Images are
# made by the tests themselves, without a registry.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

missing=()
need() { command -v "$1" >/dev/null || missing+=("${@:2}"); } # need PROGRAM PACKAGE...
need podman podman runc netavark aardvark-dns catatonit
need newuidmap uidmap
need slirp4netns slirp4netns
need dockerd docker.io
need iptables iptables
need node nodejs
if [ "${#missing[@]}" -gt 0 ]; then
    timeout 60 apt-get update -qq
    known=()
    for package in "${missing[@]}"; do # not every release has all that Podman can use
        if apt-cache show "$package" >/dev/null 2>&1; then known+=("$package"); fi
    done
    timeout 200 apt-get install -qq -y --no-install-recommends "${known[@]}" >/dev/null
fi

# crun of Debian 12 refuses a machine with both versions of cgroups; and Podman asks for more open files than a machine
# without CAP_SYS_RESOURCE may give. Both limits have to be named: naming one drops the other.
settings=/etc/containers/containers.conf.d/60-mooring-tests.conf
if [ ! -e "$settings" ] && ! timeout 60 podman run --rm --network none --rootfs / true >/dev/null 2>&1; then
    mkdir -p "${settings%/*}"
    printf '[engine]\nruntime = "runc"\n[containers]\ndefault_ulimits = ["nofile=1024:%s", "nproc=4096:4096"]\n' \
        "$(ulimit -Hn)" >"$settings"
fi

if ! timeout 10 docker version >/dev/null 2>&1; then
    setsid dockerd >/var/log/dockerd-mooring-tests.log 2>&1 </dev/null &
    for _ in $(seq 150); do
        timeout 10 docker version >/dev/null 2>&1 && break
        sleep 0.2
    done
fi
timeout 30 podman version --format 'podman {{.Client.Version}}'
timeout 30 docker version --format 'docker {{.Server.Version}}'
