#!/bin/sh
# The first and only program of a guest in `ringway demo`. Its root file system is the host's,
# read-only. Lines that begin with RINGWAY are its messages to the demonstration.
# From the kernel command line: role (a serves, b measures), seconds per measurement.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

say() { echo "RINGWAY $*"; }
power_off() { echo o > /proc/sysrq-trigger; sleep 60; }
fail() { say failed "$*"; power_off; }

mount -t proc proc /proc || exit 1
mount -t sysfs sysfs /sys || fail "no /sys"
mount -t tmpfs tmpfs /mnt || fail "no /mnt to write to"
TMPDIR=/mnt
export TMPDIR

# Ends by itself even if nobody is left to end it.
(sleep 60; power_off) &

modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    # Built into the kernel: nothing to load. The suffix tells the compression.
    for file in "$modules/$module".ko*; do
        [ ! -e "$file" ] || insmod "$file" || fail "$module cannot be loaded"
    done
done

tries=0
until [ -e /sys/class/net/eth0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 50 ] || fail "no network device appeared"
    sleep 0.1
done
case $role in
    a) own=10.0.0.1 peer=10.0.0.2 ;;
    *) own=10.0.0.2 peer=10.0.0.1 ;;
esac
ip link set lo up
ip address add $own/24 dev eth0 || fail "eth0 gets no address"
ip link set eth0 up || fail "eth0 does not come up"

# Prints what iperf3 reports, on one line; a server that is just starting is asked again.
measure() {
    for try in 1 2 3 4 5; do
        report=$(iperf3 --client $peer --time "$seconds" --interval 0 --json "$@" 2>&1 |
            tr -d '\n\t')
        case $report in
            *sum_received*) break ;;
        esac
        sleep 0.5
    done
    echo "$report"
}

case $role in
    a)
        iperf3 --server > /mnt/iperf3.log 2>&1 &
        say ready "$(uname -r)"
        ;;
    *)
        tries=0
        until ping -q -c 1 -W 1 $peer > /mnt/ping.log 2>&1; do
            tries=$((tries + 1))
            [ $tries -lt 20 ] ||
                fail "the other guest does not answer: $(tr '\n' ' ' < /mnt/ping.log)"
        done
        say ready "$(uname -r)"
        say round-trip "$(ping -q -c 200 -i 0.005 $peer 2>&1 | tr '\n' ' ')"
        say b-to-a "$(measure)"
        say a-to-b "$(measure --reverse)"
        ;;
esac

# The host ends this guest when it has what it wants; if the host is gone, so is the device.
while [ -e /sys/class/net/eth0 ]; do sleep 1; done
power_off
