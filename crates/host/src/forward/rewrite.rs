//! The packet that a receiver is given when policies had a say: the bytes that were judged, with
//! the tag its port wants, and the rest straight from the sender's memory.
//!
//! The sender may rewrite its memory between the judgement and the copy; what was judged is copied
//! aside once, so that no receiver ever sees other bytes there. The long rest is not touched.

use ringway_net::{NetHeader, PACKET_LEN_MAX, Packet};
use ringway_switch::{PEEK_LEN, TagChange};
use ringway_virtq::{ELEMENTS_MAX, SharedSlice};

use crate::memory::scratch::Scratch;

/// Bytes of the shortest packet there is: one whose tag was all that it had is none.
const ETHERNET_LEN: u32 = 14;
/// Bytes of the two addresses, which the tag follows.
const ADDRESSES_LEN: usize = 12;
const TAG_LEN: usize = 4;
const TPID: [u8; 2] = [0x81, 0x00];

/// Room for one rewritten packet.
#[derive(Debug)]
pub(crate) struct Rewriter {
    head: Scratch,
    pieces: Vec<SharedSlice>,
    header: NetHeader,
    len: u32,
}

impl Rewriter {
    pub(crate) fn new() -> Self {
        Self {
            head: Scratch::new(PEEK_LEN + TAG_LEN),
            pieces: Vec::with_capacity(ELEMENTS_MAX + 1),
            header: NetHeader::default(),
            len: 0,
        }
    }

    /// Lays `packet` out with `head`, a copy of its first bytes, in place of those, and the tag
    /// changed. `None`: its checksum would be in what goes away, or it becomes too long or short.
    pub(crate) fn lay_out(
        &mut self,
        packet: &Packet<'_>,
        head: &[u8],
        change: TagChange,
    ) -> Option<()> {
        let (tag, skip) = match change {
            TagChange::Keep => (None, 0),
            TagChange::Insert(tci) => (Some(tci), 0),
            TagChange::Strip => (None, TAG_LEN),
            TagChange::Replace(tci) => (Some(tci), TAG_LEN),
        };
        let addresses = head.get(..ADDRESSES_LEN)?;
        let rest = head.get(ADDRESSES_LEN + skip..)?;
        let added = if tag.is_some() { TAG_LEN } else { 0 };
        let to = self.head.bytes();
        to.write(0, addresses);
        if let Some(tci) = tag {
            to.write(ADDRESSES_LEN, &TPID);
            to.write(ADDRESSES_LEN + TPID.len(), &tci.to_be_bytes());
        }
        to.write(ADDRESSES_LEN + added, rest);
        self.header = shifted(*packet.header, skip, added)?;
        self.pieces.clear();
        self.pieces.push(to.split_at(head.len() - skip + added).0);
        let mut left = head.len();
        for piece in packet.payload {
            let (front, behind) = piece.split_at(piece.len().min(left));
            left -= front.len();
            if !behind.is_empty() {
                self.pieces.push(behind);
            }
        }
        let (skip, added) = (u32::try_from(skip).ok()?, u32::try_from(added).ok()?);
        self.len = packet.len - skip + added;
        (ETHERNET_LEN..=PACKET_LEN_MAX).contains(&self.len).then_some(())
    }

    /// The packet laid out last.
    pub(crate) fn packet(&self) -> Packet<'_> {
        Packet { header: &self.header, payload: &self.pieces, len: self.len }
    }
}

/// The header of a packet in which `skip` bytes behind the addresses became `added` ones.
fn shifted(header: NetHeader, skip: usize, added: usize) -> Option<NetHeader> {
    if skip == added {
        return Some(header);
    }
    let csum_start = usize::from(header.csum_start);
    let is_ahead = csum_start >= ADDRESSES_LEN + skip;
    if header.needs_csum() && !is_ahead {
        return None;
    }
    let shift = |at: u16| match at {
        0 => Some(0),
        at => u16::try_from((usize::from(at) + added).saturating_sub(skip)).ok(),
    };
    Some(NetHeader {
        csum_start: if header.needs_csum() { shift(header.csum_start)? } else { 0 },
        // A hint only; drivers leave it out as they like.
        hdr_len: shift(header.hdr_len).unwrap_or(0),
        ..header
    })
}

#[cfg(test)]
mod tests {
    use ringway_net::NEEDS_CSUM;

    use super::*;

    /// A packet of 300 bytes in pieces of 7, laid out with that change; all its bytes.
    fn laid_out(change: TagChange, header: NetHeader) -> Option<(NetHeader, Vec<u8>)> {
        let memory = Scratch::new(300);
        let bytes: Vec<u8> = (0..300u16).map(|n| n.to_le_bytes()[0]).collect();
        memory.bytes().write(0, &bytes);
        let pieces: Vec<SharedSlice> = (0..300)
            .step_by(7)
            .filter_map(|at| memory.bytes().slice(at, 7.min(300 - at)))
            .collect();
        let packet = Packet { header: &header, payload: &pieces, len: 300 };
        let mut head = [0; PEEK_LEN];
        packet.copy_out(&mut head);
        // The sender's changes from here on must not matter.
        memory.bytes().write(0, &[0xee; PEEK_LEN]);
        let mut rewriter = Rewriter::new();
        rewriter.lay_out(&packet, &head, change)?;
        let mut out = vec![0; rewriter.len as usize];
        assert_eq!(rewriter.packet().copy_out(&mut out), out.len());
        assert!(rewriter.packet().payload.iter().all(|piece| !piece.is_empty()));
        Some((*rewriter.packet().header, out))
    }

    fn expected(change: &[u8], skip: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..300u16).map(|n| n.to_le_bytes()[0]).collect();
        [&bytes[..12], change, &bytes[12 + skip..]].concat()
    }

    #[test]
    fn tags_come_and_go_and_the_judged_bytes_stay() {
        let header = NetHeader::default();
        let bytes = |change| laid_out(change, header).unwrap().1;
        assert_eq!(bytes(TagChange::Keep), expected(&[], 0));
        assert_eq!(bytes(TagChange::Insert(0x2005)), expected(&[0x81, 0, 0x20, 5], 0));
        assert_eq!(bytes(TagChange::Strip), expected(&[], 4));
        assert_eq!(bytes(TagChange::Replace(7)), expected(&[0x81, 0, 0, 7], 4));
    }

    #[test]
    fn what_is_nothing_but_a_tag_is_no_packet_without_it() {
        for (len, is_packet) in [(14, false), (17, false), (18, true)] {
            let memory = Scratch::new(len);
            let payload = [memory.bytes()];
            let len = u32::try_from(len).unwrap();
            let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len };
            let mut head = [0; PEEK_LEN];
            let len = packet.copy_out(&mut head);
            let laid_out = Rewriter::new().lay_out(&packet, &head[..len], TagChange::Strip);
            assert_eq!(laid_out.is_some(), is_packet);
        }
    }

    #[test]
    fn offsets_follow_the_bytes_that_they_point_to() {
        let header = NetHeader {
            flags: NEEDS_CSUM,
            csum_start: 38,
            csum_offset: 16,
            hdr_len: 58,
            ..NetHeader::default()
        };
        let (out, _) = laid_out(TagChange::Insert(5), header).unwrap();
        assert_eq!((out.csum_start, out.csum_offset, out.hdr_len), (42, 16, 62));
        let (out, _) = laid_out(TagChange::Strip, header).unwrap();
        assert_eq!((out.csum_start, out.hdr_len), (34, 54));
        assert_eq!(laid_out(TagChange::Keep, header).unwrap().0, header);
        let inside = NetHeader { csum_start: 13, ..header };
        assert_eq!(laid_out(TagChange::Strip, inside), None);
        let far = NetHeader { csum_start: u16::MAX, ..header };
        assert_eq!(laid_out(TagChange::Insert(5), far), None);
    }
}
