//! Samples as datagrams of sFlow version 5: packets, counters and times in, bytes out.
//!
//! Source: sFlow.org, "sFlow Version 5" (July 2004) and, for the names of interfaces, "sFlow
//! OpenFlow Structures". Limits: a datagram has at most [`DATAGRAM_LEN_MAX`] bytes.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// With the headers of IPv6 and UDP it passes where an MTU of 1,500 bytes does.
pub const DATAGRAM_LEN_MAX: usize = 1400;
/// Bytes of a packet that are sent, at most.
pub const HEAD_LEN_MAX: usize = 128;
/// Bytes of a port's name, at most.
const NAME_LEN_MAX: usize = 255;

const VERSION: u32 = 5;
/// Formats of samples and of the records in them.
const FLOW_SAMPLE: u32 = 1;
const COUNTERS_SAMPLE: u32 = 2;
const RAW_PACKET_HEADER: u32 = 1;
const INTERFACE_COUNTERS: u32 = 1;
const PORT_NAME: u32 = 1005;
const ETHERNET: u32 = 1;
/// `ifType`: ethernetCsmacd. `ifDirection`: full duplex.
const ETHERNET_CSMACD: u32 = 6;
const FULL_DUPLEX: u32 = 1;
/// The length of a packet is told with its frame check sequence, which is not there any more.
const FCS_LEN: u32 = 4;
/// Of a counter that is not counted.
const NOT_COUNTED: u32 = u32::MAX;

/// Where a packet came from, or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interface {
    Unknown,
    One(u32),
    /// To so many.
    Several(u32),
    /// To none, for a reason by its number in the specification.
    Discarded(u32),
}

/// A packet that was sampled.
#[derive(Debug, Clone)]
pub struct FlowSample<'a> {
    /// At which interface.
    pub at: u32,
    /// One packet in so many is sampled.
    pub rate: u32,
    /// Packets that it stands for.
    pub stands_for: u32,
    /// Samples that were lost so far.
    pub lost: u32,
    pub input: Interface,
    pub output: Interface,
    /// Bytes of the whole packet.
    pub packet_len: u32,
    /// The first of them.
    pub head: &'a [u8],
}

/// The counters of an interface.
#[derive(Debug, Clone)]
pub struct CounterSample<'a> {
    pub at: u32,
    pub name: &'a str,
    pub is_up: bool,
    /// Into the switch, and out of it.
    pub input: Counted,
    pub output: Counted,
}

/// Of one direction.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub bytes: u64,
    pub packets: u64,
    pub discards: u64,
}

/// Puts samples together.
#[derive(Debug)]
pub struct Datagrams {
    agent: IpAddr,
    /// Of the next datagram.
    number: u32,
    samples: Xdr,
    count: u32,
    sources: BTreeMap<u32, SampleCounters>,
    /// Those that are complete.
    ready: Vec<Vec<u8>>,
}

/// The counters of each interface's samples.
#[derive(Debug, Default)]
struct SampleCounters {
    flow_samples: u32,
    counter_samples: u32,
    pool: u32,
}

impl Datagrams {
    /// In the name of that agent.
    pub fn new(agent: IpAddr) -> Self {
        let (samples, sources) = (Xdr::default(), BTreeMap::new());
        Self { agent, number: 1, samples, count: 0, sources, ready: Vec::new() }
    }

    /// Adds a packet, at so many milliseconds since the start.
    pub fn flow(&mut self, uptime_ms: u32, sample: &FlowSample<'_>) {
        let head = &sample.head[..sample.head.len().min(HEAD_LEN_MAX)];
        let source = self.sources.entry(sample.at).or_default();
        source.flow_samples = source.flow_samples.wrapping_add(1);
        source.pool = source.pool.wrapping_add(sample.stands_for);
        let mut record = Xdr::default();
        for word in [ETHERNET, sample.packet_len.saturating_add(FCS_LEN), FCS_LEN] {
            record.word(word);
        }
        record.opaque(head);
        let mut body = Xdr::default();
        for word in [
            source.flow_samples,
            sample.at,
            sample.rate,
            source.pool,
            sample.lost,
            sample.input.code(),
            sample.output.code(),
            1,
        ] {
            body.word(word);
        }
        body.tagged(RAW_PACKET_HEADER, &record);
        self.add(uptime_ms, FLOW_SAMPLE, &body);
    }

    /// Adds what was counted at an interface.
    pub fn counters(&mut self, uptime_ms: u32, sample: &CounterSample<'_>) {
        let source = self.sources.entry(sample.at).or_default();
        source.counter_samples = source.counter_samples.wrapping_add(1);
        let mut record = Xdr::default();
        record.word(sample.at);
        record.word(ETHERNET_CSMACD);
        // No speed is set: packets go as fast as they are copied.
        record.long(0);
        record.word(FULL_DUPLEX);
        record.word(if sample.is_up { 0b11 } else { 0b01 });
        record.direction(sample.input);
        // Unknown protocols.
        record.word(NOT_COUNTED);
        record.direction(sample.output);
        // Promiscuous mode.
        record.word(NOT_COUNTED);
        let mut name = Xdr::default();
        name.opaque(&sample.name.as_bytes()[..sample.name.len().min(NAME_LEN_MAX)]);
        let mut body = Xdr::default();
        for word in [source.counter_samples, sample.at, 2] {
            body.word(word);
        }
        body.tagged(INTERFACE_COUNTERS, &record);
        body.tagged(PORT_NAME, &name);
        self.add(uptime_ms, COUNTERS_SAMPLE, &body);
    }

    /// All that was added, as datagrams.
    pub fn take(&mut self, uptime_ms: u32) -> Vec<Vec<u8>> {
        self.finish(uptime_ms);
        std::mem::take(&mut self.ready)
    }

    fn add(&mut self, uptime_ms: u32, format: u32, body: &Xdr) {
        let mut sample = Xdr::default();
        sample.tagged(format, body);
        if self.head(uptime_ms).0.len() + self.samples.0.len() + sample.0.len() > DATAGRAM_LEN_MAX {
            self.finish(uptime_ms);
        }
        self.samples.0.extend(sample.0);
        self.count += 1;
    }

    fn finish(&mut self, uptime_ms: u32) {
        if self.count == 0 {
            return;
        }
        let mut datagram = self.head(uptime_ms).0;
        datagram.append(&mut self.samples.0);
        self.ready.push(datagram);
        self.number = self.number.wrapping_add(1);
        self.count = 0;
    }

    fn head(&self, uptime_ms: u32) -> Xdr {
        let mut head = Xdr::default();
        head.word(VERSION);
        match self.agent {
            IpAddr::V4(address) => {
                head.word(1);
                head.0.extend(address.octets());
            }
            IpAddr::V6(address) => {
                head.word(2);
                head.0.extend(address.octets());
            }
        }
        // Of several agents at one address each would have its number.
        let sub_agent = 0;
        for word in [sub_agent, self.number, uptime_ms, self.count] {
            head.word(word);
        }
        head
    }
}

impl Interface {
    fn code(self) -> u32 {
        const DISCARDED: u32 = 1 << 30;
        const SEVERAL: u32 = 2 << 30;
        match self {
            Self::Unknown => 0,
            Self::One(number) => number,
            Self::Several(count) => SEVERAL | count,
            Self::Discarded(reason) => DISCARDED | reason,
        }
    }
}

/// Bytes as XDR has them (RFC 4506).
#[derive(Debug, Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn word(&mut self, word: u32) {
        self.0.extend(word.to_be_bytes());
    }

    fn long(&mut self, long: u64) {
        self.0.extend(long.to_be_bytes());
    }

    /// The lower half of a counter that others have in 32 bits.
    fn half(&mut self, long: u64) {
        self.0.extend(&long.to_be_bytes()[4..]);
    }

    fn len(&mut self, len: usize) {
        self.word(u32::try_from(len).unwrap_or(u32::MAX));
    }

    fn opaque(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn tagged(&mut self, format: u32, body: &Self) {
        self.word(format);
        self.len(body.0.len());
        self.0.extend(&body.0);
    }

    /// Packets to one station, to groups and to all are not told apart.
    fn direction(&mut self, Counted { bytes, packets, discards }: Counted) {
        self.long(bytes);
        self.half(packets);
        self.word(NOT_COUNTED);
        self.word(NOT_COUNTED);
        self.half(discards);
        self.word(NOT_COUNTED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(head: &[u8]) -> FlowSample<'_> {
        FlowSample {
            at: 3,
            rate: 1000,
            stands_for: 990,
            lost: 2,
            input: Interface::One(3),
            output: Interface::Discarded(259),
            packet_len: 1514,
            head,
        }
    }

    fn counters(at: u32) -> CounterSample<'static> {
        let input = Counted { bytes: 1 << 40, packets: (7 << 32) + 5, discards: 1 };
        let output = Counted { bytes: 300, packets: 4, discards: 0 };
        CounterSample { at, name: "vm0", is_up: true, input, output }
    }

    fn words(bytes: &[u8]) -> String {
        let words: Vec<String> = bytes
            .chunks(4)
            .map(|word| word.iter().map(|it| format!("{it:02x}")).collect())
            .collect();
        words.join(" ")
    }

    #[test]
    fn a_datagram_is_byte_for_byte_as_the_specification_has_it() {
        let mut datagrams = Datagrams::new("192.0.2.1".parse().expect("an address"));
        datagrams.flow(70_000, &flow(&[0xaa; 14]));
        datagrams.counters(70_000, &counters(3));
        let taken = datagrams.take(70_001);
        let head = "00000005 00000001 c0000201 00000000 00000001 00011171 00000002";
        let flow = "00000001 00000048 00000001 00000003 000003e8 000003de 00000002 00000003 \
                    40000103 00000001 00000001 00000020 00000001 000005ee 00000004 0000000e \
                    aaaaaaaa aaaaaaaa aaaaaaaa aaaa0000";
        let counters = "00000002 0000007c 00000001 00000003 00000002 00000001 00000058 00000003 \
                        00000006 00000000 00000000 00000001 00000003 00000100 00000000 00000005 \
                        ffffffff ffffffff 00000001 ffffffff ffffffff 00000000 0000012c 00000004 \
                        ffffffff ffffffff 00000000 ffffffff ffffffff 000003ed 00000008 00000003 \
                        766d3000";
        assert_eq!(
            taken.iter().map(|it| words(it)).collect::<Vec<_>>(),
            [[head, flow, counters].join(" ")]
        );
        assert!(datagrams.take(70_002).is_empty());
    }

    #[test]
    fn what_is_too_much_for_one_datagram_goes_into_several() {
        let mut datagrams = Datagrams::new("::1".parse().expect("an address"));
        for number in 0..100 {
            datagrams.flow(number, &flow(&[1; 1000]));
            datagrams.counters(number, &counters(number));
        }
        let taken = datagrams.take(100);
        let word = |datagram: &[u8], at: usize| {
            u32::from_be_bytes(datagram[4 * at..4 * at + 4].try_into().expect("a word"))
        };
        assert!(taken.iter().all(|datagram| datagram.len() <= DATAGRAM_LEN_MAX));
        assert!(taken.iter().rev().skip(1).all(|datagram| datagram.len() > DATAGRAM_LEN_MAX - 220));
        assert_eq!(taken.iter().map(|datagram| word(datagram, 9)).sum::<u32>(), 200);
        let numbers = taken.iter().map(|datagram| word(datagram, 7));
        assert!(numbers.eq(1..=u32::try_from(taken.len()).expect("few")));
    }
}
