//! A guest's settings through its controlq, and a worker that is killed between any two stores.
//!
//! How: as in `killed.rs`. A command whose answer the guest has seen holds for the next worker.

use ringway_net::{ControlState, answer};
use ringway_virtq::{Areas, kill_after};

use super::*;
use crate::journal::Journal;
use crate::journal::worker_line::WorkerLine;

const FEATURES: Features = Features::VERSION_1
    .union(Features::CTRL_VQ)
    .union(Features::CTRL_RX)
    .union(Features::CTRL_VLAN)
    .union(Features::CTRL_MAC_ADDR);
const PORT: PortId = PortId(0);
const COMMANDS: [&[u8]; 4] = [
    &[1, 1, 0x52, 0x54, 0, 0, 0, 2],
    &[0, 0, 0],
    &[2, 0, 7, 0],
    &[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0x5e, 1, 2, 3],
];

fn negotiated() -> Negotiated {
    Negotiated::new(FEATURES).unwrap()
}

fn started(journal: &OwnedFd, memory: &GuestMemory, areas: Areas) -> (Worker, OtherEnds) {
    let journal = Arc::new(Journal::open(journal).unwrap());
    let (mut worker, ends) = worker(WorkerPeers::of(1).unwrap().remove(0), Switch::new(7));
    worker.journal = Some(WorkerLine::unlocked(journal, 0).unwrap());
    let negotiated = negotiated();
    worker.attach_guest(PORT, negotiated, (mac(0), 1), memory);
    worker.note_rings(PORT, Some(1));
    let options = negotiated.options;
    let setup = QueueSetup { size: QUEUE_SIZE, areas, position: Position::FRESH, options };
    let queue = QueueId { pair: 0, queue: Queue::Control };
    worker.start_queue(PORT, queue, &setup, QueueFds::default()).unwrap();
    (worker, ends)
}

/// The worker makes so many stores before it is killed; `None`: it was not.
fn run(stores: u64) -> Option<()> {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, MEMORY_LEN).unwrap();
    let request =
        MemoryRequest { guest_address: BASE, size: MEMORY_LEN, mmap_offset: 0, fd: fd.into() };
    let memory = GuestMemory::map(vec![request]).unwrap();
    let bytes = memory.regions().slice(BASE, u32::try_from(MEMORY_LEN).unwrap()).unwrap();
    let options = negotiated().options;
    let len = Layout::of(SplitDriver::FORMAT, QUEUE_SIZE, options).len as usize;
    let mut driver = SplitDriver::new(bytes.slice(0, len).unwrap(), BASE, QUEUE_SIZE, options);
    let journal = Journal::create(1, 4).unwrap();
    let mut life = started(&journal, &memory, driver.areas());
    let mut expected = ControlState::new(mac(0), &negotiated());
    let (mut left, mut killed) = (stores, None);
    for (id, command) in (0..).zip(COMMANDS) {
        let at = SEND_AT + u64::from(id) * SEND_LEN;
        bytes.write(usize::try_from(at).unwrap(), command);
        let readable = [(BASE + at, u32::try_from(command.len()).unwrap())];
        driver.add(&readable, &[(BASE + at + 64, 1)], BufferId(id)).unwrap();
        driver.publish();
        match kill_after(left, || life.0.on_kick(PORT, Queue::Control)) {
            Ok(made) => left -= made,
            Err(()) => {
                (left, killed) = (1 << 40, Some(()));
                life = started(&journal, &memory, driver.areas());
            }
        }
        assert_eq!(driver.pop_used().unwrap().map(|used| used.len), Some(1), "it was answered");
        answer(command, &mut expected, &negotiated());
        let guest = life.0.ports.guest(PORT).unwrap();
        assert_eq!(*guest.queues.control_state(), expected, "{command:?}, {stores} stores");
    }
    killed
}

#[test]
fn what_a_guest_has_set_outlives_the_worker_that_it_told() {
    let kills = (0..).take_while(|stores| run(*stores).is_some()).count();
    assert!(kills > 30, "{kills} kills");
}
