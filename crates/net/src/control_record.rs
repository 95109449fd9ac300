//! A control state as commands that lead to it, so that another process can have it.
//!
//! How: each command with its length in front (u16), in an order in which none takes back what one
//! before has set. They are carried out as a guest's are: whatever the bytes, the state is one that
//! a guest can set. Limits: how often the guest has announced itself is not in it, nor a hash
//! without `HASH_REPORT`.

use alloc::vec::Vec;

use crate::coalescing::{CoalesceLimits, QueueKind};
use crate::control::{
    CLASS_COALESCING, CLASS_GUEST_OFFLOADS, CLASS_MAC, CLASS_QUEUES, CLASS_RECEIVE_MODE,
    CLASS_VLAN, COALESCE_QUEUE, COALESCE_RECEIVE, COALESCE_TRANSMIT, GUEST_OFFLOADS_SET,
    HASH_CONFIG, MAC_ADDR_SET, MAC_TABLE_SET, QUEUE_PAIRS_SET, RSS_CONFIG, VLAN_ADD,
};
use crate::control_state::ControlState;
use crate::receive_filter::{ReceiveFilter, ReceiveMode};
use crate::{Negotiated, ReceiveHash, answer};

/// Most bytes of [`commands`]: all VLANs, full tables, 256 queues.
pub const COMMANDS_LEN_MAX: usize = 32 * 1024;

/// Commands one behind the other.
struct Commands(Vec<u8>);

impl Commands {
    fn add(&mut self, class: u8, command: u8, data: &[&[u8]]) {
        let data = data.concat();
        let len = u16::try_from(2 + data.len()).expect("commands are short");
        self.0.extend(len.to_le_bytes());
        self.0.extend([class, command]);
        self.0.extend(data);
    }

    fn add_filter(&mut self, filter: &ReceiveFilter) {
        for (number, mode) in (0..).zip(ReceiveMode::ALL) {
            self.add(CLASS_RECEIVE_MODE, number, &[&[u8::from(filter.mode(mode))]]);
        }
        let mut tables = Vec::new();
        for table in filter.tables() {
            tables.extend(u32::try_from(table.len()).unwrap_or(u32::MAX).to_le_bytes());
            tables.extend(table.flat_map(|address| address.0));
        }
        self.add(CLASS_MAC, MAC_TABLE_SET, &[&tables]);
        for vlan in filter.vlans() {
            self.add(CLASS_VLAN, VLAN_ADD, &[&vlan.to_le_bytes()]);
        }
    }

    fn add_queues(&mut self, state: &ControlState) {
        let pairs = state.queue_pairs.to_le_bytes();
        self.add(CLASS_QUEUES, QUEUE_PAIRS_SET, &[&pairs]);
        let key = |hash: &ReceiveHash| [&[hash.key().len().to_le_bytes()[0]], hash.key()].concat();
        match (&state.rss, &state.hash) {
            (Some(table), _) => {
                let entries: Vec<u8> =
                    table.entries().iter().flat_map(|entry| entry.to_le_bytes()).collect();
                let mask = u16::try_from(table.entries().len() - 1).unwrap_or(0).to_le_bytes();
                let types = table.hash().types().to_le_bytes();
                let rest = [&table.unclassified().to_le_bytes()[..], &entries, &pairs];
                let data = [&types[..], &mask, &rest.concat(), &key(table.hash())];
                self.add(CLASS_QUEUES, RSS_CONFIG, &data);
            }
            (None, Some(hash)) => {
                let data = [&hash.types().to_le_bytes()[..], &[0; 8], &key(hash)];
                self.add(CLASS_QUEUES, HASH_CONFIG, &data);
            }
            (None, None) => {}
        }
    }
}

/// Commands that lead to this state from that after a reset.
pub fn commands(state: &ControlState) -> Vec<u8> {
    let mut commands = Commands(Vec::new());
    commands.add(CLASS_MAC, MAC_ADDR_SET, &[&state.mac.0]);
    let offloads = state.guest_offloads.bits().to_le_bytes();
    commands.add(CLASS_GUEST_OFFLOADS, GUEST_OFFLOADS_SET, &[&offloads]);
    commands.add_filter(&state.filter);
    commands.add_queues(state);
    let limits = |limits: &CoalesceLimits| limits.encode();
    for (kind, all) in state.coalescing.all() {
        let number = match kind {
            QueueKind::Transmit => COALESCE_TRANSMIT,
            QueueKind::Receive => COALESCE_RECEIVE,
        };
        commands.add(CLASS_COALESCING, number, &[&limits(&all)]);
    }
    for (queue, one) in state.coalescing.one() {
        let queue = u32::from(queue).to_le_bytes();
        commands.add(CLASS_COALESCING, COALESCE_QUEUE, &[&queue, &limits(&one)]);
    }
    commands.0
}

/// Carries out such commands; what makes no sense is left out.
pub fn follow(state: &mut ControlState, mut commands: &[u8], negotiated: &Negotiated) {
    while let Some((len, rest)) = commands.split_first_chunk()
        && let Some((command, rest)) = rest.split_at_checked(u16::from_le_bytes(*len).into())
    {
        answer(command, state, negotiated);
        commands = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ADDRESSES_MAX, Features, MacAddress};

    const ALL: Features = Features::OFFERED.union(Features::ON_REQUEST);

    fn fresh() -> (ControlState, Negotiated) {
        let negotiated = Negotiated::new(ALL).unwrap();
        (ControlState::new(MacAddress::local(1), &negotiated).with_queue_pairs_max(4), negotiated)
    }

    fn again(state: &ControlState) -> ControlState {
        let (mut again, negotiated) = fresh();
        follow(&mut again, &commands(state), &negotiated);
        again
    }

    #[test]
    fn whatever_a_guest_has_set_is_set_again() {
        let (mut state, negotiated) = fresh();
        assert_eq!(again(&state), state);
        let key = [&[40u8], &[7; 40][..]].concat();
        let rss = [&[4, 1, 0x3f, 0, 0, 0, 1, 0, 1, 0, 3, 0, 2, 0, 4, 0], &key[..]].concat();
        let hash = [&[4, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &key[..]].concat();
        let many = u32::try_from(ADDRESSES_MAX + 1).unwrap();
        let addresses: Vec<u8> = (0..many).flat_map(|n| MacAddress::local(n + 9).0).collect();
        let table = [&[1, 0][..], &1u32.to_le_bytes(), &[2, 0, 0, 0, 0, 5], &many.to_le_bytes()];
        let table = [&table.concat()[..], &addresses].concat();
        let all: [&[u8]; 12] = [
            &[1, 1, 0x52, 0x54, 0, 0, 0, 2],
            &[0, 0, 0],
            &[0, 4, 1],
            &table,
            &[2, 0, 7, 0],
            &[2, 0, 0xff, 0x0f],
            &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[4, 0, 3, 0],
            &rss,
            &[6, 0, 16, 0, 0, 0, 50, 0, 0, 0],
            &[6, 2, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0],
            &hash,
        ];
        for command in all {
            let before = state.clone();
            answer(command, &mut state, &negotiated);
            assert_ne!(state, before, "{command:?}");
            assert_eq!(again(&state), state, "{command:?}");
        }
        for vlan in 0..4096u16 {
            let [low, high] = vlan.to_le_bytes();
            answer(&[2, 0, low, high], &mut state, &negotiated);
        }
        assert_eq!(again(&state), state);
        assert!(commands(&state).len() < COMMANDS_LEN_MAX * 9 / 10);
    }

    #[test]
    fn commands_that_are_cut_or_nonsense_are_left_out() {
        let (mut state, negotiated) = fresh();
        answer(&[0, 0, 0], &mut state, &negotiated);
        let commands = commands(&state);
        for len in 0..commands.len() {
            let (mut cut, negotiated) = fresh();
            follow(&mut cut, &commands[..len], &negotiated);
            follow(&mut cut, &[0xff; 40], &negotiated);
        }
    }
}
