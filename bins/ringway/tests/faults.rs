//! Memory in which page faults sleep costs the guest whose memory it is, not the others.

#[path = "common/cold_file.rs"]
mod cold_file;
mod common;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cold_file::{SlowDisk, cold_file};
use common::{Ringway, wait_for};
use ringway_testkit::{AnyUserGuest, GuestOptions, RawFrontEnd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};

const MIB: u64 = 1 << 20;

/// User addresses are guest-physical ones and this.
const USER_OFFSET: u64 = 0x7f00_0000_0000;
/// Guest-physical address of the file with the buffers; the rings are in another one, at 0.
const BUFFERS: u64 = 1 << 40;
/// Bytes of that file: to punch them all takes from 50 ms on.
const BUFFERS_LEN: u64 = 512 * MIB;
/// From one buffer to the next.
const STEP: u64 = 128 * 1024;
const BUFFER_LEN: u32 = 1526;

/// Entries of each ring.
const SIZE: u16 = 256;
/// Where the parts of a ring are, from its start.
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
const RING_LEN: u64 = 0x8000;

/// `receiveq1` and `transmitq1`; flags of the descriptors in them.
const QUEUES: [(u32, u16); 2] = [(0, 2), (1, 0)];

const PORTS: [&str; 6] =
    ["--port", "a=vm:a.sock", "--port", "b=vm:b.sock", "--port", "c=vm:c.sock"];

/// A guest without a driver, whose buffers lie in a file of their own, one after the other.
struct Guest {
    front_end: RawFrontEnd,
    rings: File,
    kick: OwnedFd,
    available: [u16; 2],
    next_at: u64,
    step: u64,
    /// Where it writes what it sends; `None`: it sends what was never touched.
    written: Option<File>,
}

impl Guest {
    fn attach(socket: &Path, buffers: &File) -> Self {
        let front_end = wait_for("a listener", || RawFrontEnd::connect(socket).ok());
        let kick = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let rings = memory(MIB);
        let (available, next_at, step, written) = ([0; 2], 0, STEP, None);
        let mut guest = Self { front_end, rings, kick, available, next_at, step, written };
        let pair = |first: u32, second: u32| [first, second].map(u32::to_le_bytes).concat();
        guest.must(3, &[], &[]);
        guest.front_end.request(15, &[], &[]).expect("protocol features");
        guest.must(16, &8_u64.to_le_bytes(), &[]);
        guest.must(2, &(1_u64 << 32 | 1 << 30).to_le_bytes(), &[]);
        let files = [&guest.rings, buffers].map(|file| file.try_clone().expect("an fd").into());
        guest.must(5, &memory_table(), &files);
        let kick = guest.kick.try_clone().expect("an fd");
        for (index, _) in QUEUES {
            guest.must(8, &pair(index, SIZE.into()), &[]);
            guest.must(10, &pair(index, 0), &[]);
            guest.must(9, &addresses(index), &[]);
            guest.must(12, &u64::from(index).to_le_bytes(), std::slice::from_ref(&kick));
            guest.must(18, &pair(index, 1), &[]);
        }
        guest
    }

    fn must(&mut self, code: u32, payload: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        let answer = self.front_end.request(code, payload, &fds).expect("an answer");
        assert!(answer.is_done(), "request {code} was answered {answer:?}");
    }

    /// Makes as many buffers available in that queue as there is room for.
    fn offer(&mut self, queue: usize) {
        let (at, (_, flags)) = (queue as u64 * RING_LEN, QUEUES[queue]);
        let mut used = [0; 2];
        self.rings.read_exact_at(&mut used, at + USED + 2).expect("memory");
        let write = |bytes: &[u8], at| self.rings.write_all_at(bytes, at).expect("memory");
        let in_flight = self.available[queue].wrapping_sub(u16::from_le_bytes(used));
        for _ in in_flight..SIZE {
            let slot = self.available[queue] % SIZE;
            let address = (BUFFERS + self.next_at).to_le_bytes();
            let rest = [flags, 0].map(u16::to_le_bytes).concat();
            let descriptor = [&address[..], &BUFFER_LEN.to_le_bytes(), &rest].concat();
            if let (Some(file), 1) = (&self.written, queue) {
                file.write_all_at(&[0; BUFFER_LEN as usize], self.next_at).expect("memory");
            }
            write(&descriptor, at + u64::from(slot) * 16);
            write(&slot.to_le_bytes(), at + AVAILABLE + 4 + u64::from(slot) * 2);
            self.available[queue] = self.available[queue].wrapping_add(1);
            self.next_at = (self.next_at + self.step) % BUFFERS_LEN;
        }
        write(&self.available[queue].to_le_bytes(), at + AVAILABLE + 2);
        let _ = rustix::io::write(&self.kick, &1_u64.to_ne_bytes());
    }
}

/// Descriptor, device and driver area of a ring.
fn addresses(index: u32) -> Vec<u8> {
    let at = USER_OFFSET + u64::from(index) * RING_LEN;
    let areas = [at, at + USED, at + AVAILABLE, 0].map(u64::to_le_bytes).concat();
    [[index, 0].map(u32::to_le_bytes).concat(), areas].concat()
}

/// Both files, in one table.
fn memory_table() -> Vec<u8> {
    let mut table = [2_u32, 0].map(u32::to_le_bytes).concat();
    for (address, len) in [(0, MIB), (BUFFERS, BUFFERS_LEN)] {
        let words = [address, len, address + USER_OFFSET, 0];
        table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
    table
}

fn memory(len: u64) -> File {
    let file = memfd_create("faults", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, len).expect("a length");
    file.into()
}

/// Punches the whole file and fills it again, all the time.
fn punch(file: &File, is_over: &AtomicBool) {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    while !is_over.load(Ordering::Relaxed) {
        fallocate(file, FallocateFlags::empty(), 0, BUFFERS_LEN).expect("memory");
        fallocate(file, hole, 0, BUFFERS_LEN).expect("a hole");
    }
}

/// Good guests send to each other and to all, and get what comes.
fn exchange(guests: &mut [AnyUserGuest; 2]) {
    let macs = guests.each_ref().map(AnyUserGuest::mac);
    for (at, guest) in guests.iter_mut().enumerate() {
        for to in [macs[1 - at], [0xff; 6]] {
            let mut packet = [&to[..], &macs[at], &[0x88, 0xb5]].concat();
            packet.resize(64, 0);
            let _ = guest.send(&packet).expect("a device");
        }
        guest.flush();
        while guest.receive().expect("a device").is_some() {}
        guest.flush();
    }
    std::thread::sleep(Duration::from_millis(1));
}

/// Good guests at the ports `a` and `b`, and `act` on port `c` until it says that it is done.
fn beside_good_guests(mut act: impl FnMut(&Ringway, &Path) -> bool) {
    let directory = tempfile::tempdir().expect("a directory");
    let ringway = Ringway::run(directory.path(), &PORTS);
    let mut guests = ["a.sock", "b.sock"].map(|name| {
        let socket = directory.path().join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
    });
    let socket = directory.path().join("c.sock");
    let deadline = Instant::now() + common::LIMIT;
    while !act(&ringway, &socket) {
        exchange(&mut guests);
        assert!(Instant::now() < deadline, "not within {:?}: {}", common::LIMIT, ringway.log());
    }
    for port in ["a", "b"] {
        assert_eq!(ringway.state(port).as_deref(), Some("running"), "{}", ringway.log());
        assert!(!ringway.log().contains(&format!("gone port=\"{port}\"")), "{}", ringway.log());
    }
}

fn is_disconnected(ringway: &Ringway, port: &str) -> bool {
    ringway.error(port).is_some_and(|why| why.contains("page faults sleep"))
}

/// Only the guest whose buffers are in this file is disconnected, for what it sends or for what
/// others send to it.
fn only_its_guest_is_disconnected(file: &File, queue: usize) {
    let (mut guest, mut looked_at) = (None, Instant::now());
    beside_good_guests(|ringway, socket| {
        guest.get_or_insert_with(|| Guest::attach(socket, file)).offer(queue);
        let is_time = looked_at.elapsed() > Duration::from_millis(50);
        if is_time {
            looked_at = Instant::now();
        }
        is_time && is_disconnected(ringway, "c")
    });
}

fn punches_its_memory(queue: usize) {
    let (file, is_over) = (memory(BUFFERS_LEN), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| punch(&file, &is_over));
        // The thread ends with this, also if the test fails.
        let _over = Over(&is_over);
        only_its_guest_is_disconnected(&file, queue);
    });
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each page comes from a disk that is read at most 50 times in a second.
#[test]
fn a_guest_whose_memory_is_in_a_cold_file_on_a_slow_disk_is_disconnected() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let file = cold_file(directory.path(), BUFFERS_LEN, STEP).expect("room on the disk");
    let disk = match SlowDisk::below(&file, 50) {
        Ok(disk) => disk,
        Err(why) => return println!("skipped: no control group of our own: {why}"),
    };
    let mut guest = None;
    beside_good_guests(|ringway, socket| {
        let guest = guest.get_or_insert_with(|| {
            let pid = ringway.data_plane().as_raw_nonzero().get().unsigned_abs();
            disk.slow_down(pid).expect("it runs");
            Guest::attach(socket, &file)
        });
        guest.offer(1);
        is_disconnected(ringway, "c")
    });
}

#[test]
fn a_guest_that_punches_what_it_sends_is_disconnected() {
    punches_its_memory(1);
}

#[test]
fn a_guest_that_punches_its_receive_buffers_is_disconnected_and_not_who_sends_to_it() {
    punches_its_memory(0);
}

/// Pages that are read of it would be made in its file, and count as ringway's, until there is no
/// memory left for any guest.
#[test]
fn a_guest_that_sends_what_was_never_touched_is_disconnected_before_much_is_made() {
    let (file, mut guest) = (memory(BUFFERS_LEN), None);
    beside_good_guests(|ringway, socket| {
        let attach = || Guest { step: 4096, ..Guest::attach(socket, &file) };
        guest.get_or_insert_with(attach).offer(1);
        is_disconnected(ringway, "c")
    });
    let made = file.metadata().expect("a file").blocks() * 512;
    // 24 MiB, and what is sent until its front-end is let go: more where the machine is busy.
    assert!(made < BUFFERS_LEN / 4, "{made} bytes");
}

/// A memory cgroup of [`GROUP_LEN`], of version 1 or 2. It goes when no process is in it any more.
struct MemoryGroup(PathBuf);

const GROUP_LEN: u64 = 96 * MIB;

impl MemoryGroup {
    fn new() -> Option<Self> {
        let versions = [("memory", "memory.limit_in_bytes"), ("", "memory.max")];
        versions.into_iter().find_map(|(root, limit)| {
            let name = format!("ringway-faults-{}", std::process::id());
            let path = Path::new("/sys/fs/cgroup").join(root).join(name);
            std::fs::create_dir(&path).ok()?;
            let group = Self(path);
            std::fs::write(group.0.join(limit), GROUP_LEN.to_string()).ok().map(|()| group)
        })
    }

    /// A ringway that is in it.
    fn command(&self) -> Command {
        let mut command = Command::new("sh");
        let script = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
        command.args(["-c", script]).arg(&self.0).arg(env!("CARGO_BIN_EXE_ringway"));
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(2);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Pages that ringway makes count as its own; the kernel would end the data plane, again and again.
#[test]
fn guests_that_send_what_was_never_touched_use_up_the_memory_of_no_group() {
    let Some(group) = MemoryGroup::new() else {
        return println!("skipped: no memory cgroup can be made here");
    };
    let directory = tempfile::tempdir().expect("a directory");
    let ports = [&PORTS[..], &["--port", "d=vm:d.sock"]].concat();
    let ringway = Ringway::run_by(group.command(), directory.path(), &ports);
    let mut good = ["a.sock", "b.sock"].map(|name| {
        let socket = directory.path().join(name);
        wait_for("a guest", || AnyUserGuest::attach(&socket, &GuestOptions::default()).ok())
    });
    // A page for each packet.
    let attach = |port| {
        let guest = Guest::attach(&directory.path().join(port), &memory(BUFFERS_LEN));
        Guest { step: 4096, ..guest }
    };
    let mut others = ["c.sock", "d.sock"].map(attach);
    wait_for("both are disconnected", || {
        others.iter_mut().for_each(|guest| guest.offer(1));
        exchange(&mut good);
        ["c", "d"].iter().all(|port| is_disconnected(&ringway, port)).then_some(())
    });
    assert!(!ringway.log().contains("the data plane ended"), "{}", ringway.log());
    assert_eq!(ringway.state("a").as_deref(), Some("running"));
}

/// Its buffers for what it gets need not be there.
#[test]
fn a_guest_that_touches_new_memory_stays() {
    let file = memory(BUFFERS_LEN);
    let (mut guest, mut rounds) = (None, 0);
    beside_good_guests(|_, socket| {
        let guest = guest.get_or_insert_with(|| {
            let written = Some(file.try_clone().expect("an fd"));
            Guest { written, ..Guest::attach(socket, &file) }
        });
        guest.offer(0);
        guest.offer(1);
        rounds += 1;
        if rounds == 1000 {
            // It is there, and answers.
            guest.must(18, &[1_u32, 1].map(u32::to_le_bytes).concat(), &[]);
        }
        rounds == 1000
    });
}
