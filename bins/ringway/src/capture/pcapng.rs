//! Packets as blocks of a pcapng file.

use std::borrow::Cow;
use std::time::Duration;

use anyhow::Context;
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption, InterfaceTsResolution,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::opt_common::{CommonOption, UnknownOption};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use ringway_host::{CaptureDirection, CaptureRecord};
use rustix::time::{ClockId, clock_gettime};

use super::describe::comment;
use super::places::Interface;
use crate::control::CaptureQuestion;

/// `epb_flags`: as the switch sees it, from a guest is inbound.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;
/// `epb_queue`: 32 bits, the number of the queue.
const QUEUE_OPTION: u16 = 6;
/// `if_filter` in words.
const FILTER_IN_WORDS: u8 = 0;

/// Bytes of the last block of one port, at most.
const LAST_LEN_MAX: u64 = 64;

/// Two clocks that differ by as much more or less than before were set, or slept.
const STEP_MIN: Duration = Duration::from_millis(10);

/// Blocks that wait to be written.
pub struct Blocks {
    writer: PcapNgWriter<Vec<u8>>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// The time by which the monotonic clock is behind that of the calendar.
    since_1970: Duration,
    /// Packets of each interface.
    packets: Vec<u64>,
}

impl Blocks {
    /// A file's first blocks: who writes it, and which ports it is of.
    ///
    /// # Errors
    /// The clock cannot be read, or text has no form in a file.
    pub fn new(question: &CaptureQuestion, interfaces: &[Interface]) -> anyhow::Result<Self> {
        let program = concat!("ringway ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(program.into())],
            ..SectionHeaderBlock::default()
        };
        let mut writer = PcapNgWriter::with_section_header(Vec::new(), section)?;
        for interface in interfaces {
            writer.write_pcapng_block(described(question, interface))?;
        }
        let ends = vec![writer.get_ref().len()];
        let packets = vec![0; interfaces.len()];
        Ok(Self { writer, ends, since_1970: Look::now()?.since_1970, packets })
    }

    /// To be called now and then: the calendar's clock may be set, and the other one may sleep.
    pub fn follow_clock(&mut self) {
        if let Ok(Look { since_1970, took }) = Look::now()
            && took < STEP_MIN
        {
            self.since_1970 = moved(self.since_1970, since_1970);
        }
    }

    /// Bytes of the last blocks, at most.
    pub fn last_len_max(&self) -> u64 {
        LAST_LEN_MAX * self.packets.len() as u64
    }

    /// Adds a packet of an interface, unless everything that waits would then have more than
    /// `bytes_max`.
    pub fn packet(
        &mut self,
        record: &CaptureRecord,
        bytes: &[u8],
        interface: usize,
        bytes_max: Option<u64>,
    ) -> bool {
        let direction = match record.direction {
            CaptureDirection::FromGuest => INBOUND,
            CaptureDirection::ToGuest => OUTBOUND,
        };
        let queue = u32::from(record.pair).to_ne_bytes();
        let block = EnhancedPacketBlock {
            interface_id: u32::try_from(interface).unwrap_or(0),
            timestamp: self.since_1970 + Duration::from_nanos(record.time_ns),
            original_len: record.packet_len,
            data: Cow::Borrowed(bytes),
            options: vec![
                EnhancedPacketOption::Flags(direction),
                EnhancedPacketOption::Common(CommonOption::Unknown(UnknownOption::new(
                    QUEUE_OPTION,
                    &queue,
                ))),
                EnhancedPacketOption::Common(CommonOption::Comment(comment(record).into())),
            ],
        };
        let before = self.writer.get_ref().len();
        let is_written = self.writer.write_block(&block.into_block()).is_ok();
        let len = self.writer.get_ref().len();
        let fits = bytes_max.is_none_or(|max| len as u64 <= max);
        if !is_written || !fits {
            self.writer.get_mut().truncate(before);
            return false;
        }
        self.ends.push(len);
        if let Some(packets) = self.packets.get_mut(interface) {
            *packets += 1;
        }
        true
    }

    /// The last blocks: how many packets there were of each port, and how many were lost. Of
    /// several ports it is not known whose those were: they are the first one's.
    ///
    /// # Errors
    /// The clock cannot be read.
    pub fn finish(&mut self, mut lost: u64) -> anyhow::Result<()> {
        let now = Duration::try_from(clock_gettime(ClockId::Realtime)).context("the clock")?;
        for (interface_id, packets) in (0..).zip(&self.packets) {
            let options = vec![
                InterfaceStatisticsOption::IsbIfRecv(packets.saturating_add(lost)),
                InterfaceStatisticsOption::IsbIfDrop(std::mem::take(&mut lost)),
            ];
            let block = InterfaceStatisticsBlock { interface_id, timestamp: now, options };
            self.writer.write_pcapng_block(block)?;
            self.ends.push(self.writer.get_ref().len());
        }
        Ok(())
    }

    /// The blocks that wait, and where each of them ends.
    pub fn take(&mut self) -> (Vec<u8>, Vec<usize>) {
        (std::mem::take(self.writer.get_mut()), std::mem::take(&mut self.ends))
    }
}

fn described<'a>(
    question: &CaptureQuestion,
    interface: &'a Interface,
) -> InterfaceDescriptionBlock<'a> {
    let mut options = vec![
        InterfaceDescriptionOption::IfName((&interface.name).into()),
        InterfaceDescriptionOption::IfDescription((&interface.description).into()),
        InterfaceDescriptionOption::IfTsResol(InterfaceTsResolution::NANO),
    ];
    if let Some(filter) = question.filter.as_ref().filter(|filter| !filter.is_empty()) {
        let text = [&[FILTER_IN_WORDS], filter.as_bytes()].concat();
        options.push(InterfaceDescriptionOption::IfFilter(text.into()));
    }
    let snaplen = question.snap.unwrap_or(0);
    InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen, options }
}

/// A look that takes a moment moves no packet before the one in front of it.
fn moved(before: Duration, now: Duration) -> Duration {
    if now.abs_diff(before) < STEP_MIN { before } else { now }
}

/// A look at both clocks.
struct Look {
    since_1970: Duration,
    took: Duration,
}

impl Look {
    fn now() -> anyhow::Result<Self> {
        let now = |clock| Duration::try_from(clock_gettime(clock)).context("the clock");
        let (begun, calendar) = (now(ClockId::Monotonic)?, now(ClockId::Realtime)?);
        let took = now(ClockId::Monotonic)?.saturating_sub(begun);
        Ok(Self { since_1970: calendar.saturating_sub(begun), took })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface() -> Interface {
        Interface { name: "a".into(), description: String::new() }
    }

    #[test]
    fn a_clock_that_is_set_is_followed_and_what_a_look_takes_is_not() {
        let at = Duration::from_millis;
        for (now, wanted) in [(5000, 5000), (5003, 5000), (4998, 5000), (5100, 5100), (900, 900)] {
            assert_eq!(moved(at(5000), at(now)), at(wanted));
        }
        let mut blocks = Blocks::new(&CaptureQuestion::default(), &[interface()]).expect("a file");
        blocks.since_1970 = Duration::ZERO;
        blocks.follow_clock();
        assert!(blocks.since_1970 > Duration::from_secs(1_000_000_000), "it was set");
    }

    #[test]
    fn the_last_block_has_the_length_that_is_kept_for_it() {
        let mut blocks = Blocks::new(&CaptureQuestion::default(), &[interface()]).expect("a file");
        blocks.take();
        blocks.packets = vec![u64::MAX];
        blocks.finish(u64::MAX).expect("a block");
        assert!(blocks.take().0.len() as u64 <= blocks.last_len_max());
    }
}
