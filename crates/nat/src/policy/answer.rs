//! A resolver's answer to a guest's question, under a policy: the addresses that the name is bound
//! to from then on, and the message that tells the guest of them and of nothing else.
//!
//! How: aliases are followed from the name of the question, whatever their names are; only records
//! of the kind that was asked for count at the end. All others, and the sections behind the
//! answers, are not even read.
//!
//! Limits: the first [`RECORDS_MAX`] records, and of addresses the first [`ADDRESSES_MAX`].

use std::net::IpAddr;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Label, Name, Packet, Question, ResourceRecord};

use super::bindings::BINDING_MAX_S;
use super::question::{
    BLOCKED, IS_ANSWER, IS_TRUNCATED, NAME_ERROR, NO_ERROR, OPCODE, UpstreamQuestion,
};
use crate::packet::{array, word};
use crate::reach::meant;

/// Most addresses in an answer: those of both families are half of what a name may have unused.
pub const ADDRESSES_MAX: usize = 32;
/// Most records of an answer that are read.
pub const RECORDS_MAX: u16 = 128;
/// Most aliases between a name and its records.
pub const ALIASES_MAX: usize = 16;

const HEADER_LEN: usize = 12;
const CNAME: u16 = 5;

/// The answer for a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAnswer {
    /// The message.
    pub message: Vec<u8>,
    /// The addresses in it, and for how many seconds they may be remembered: the guest must not
    /// get it before its name is bound to all of them.
    pub addresses: Vec<(IpAddr, u32)>,
    /// The addresses that were left out, because no answer opens them.
    pub dropped: Vec<IpAddr>,
    /// The resolver had more to say, and can be asked by TCP.
    pub is_truncated: bool,
}

impl UpstreamQuestion {
    /// Reads a message of the resolver; `opens`: whether an answer may open an address. Those that
    /// stand for others (mapped, translated) never are.
    ///
    /// `None`: it does not answer this question.
    pub fn answer(&self, message: &[u8], opens: impl Fn(IpAddr) -> bool) -> Option<GuestAnswer> {
        let [.., flags, code] = self.header_of_answer(message)?;
        let is_truncated = flags & IS_TRUNCATED != 0;
        let code = code & 0xf;
        let copy = without_rest(message);
        let found = Packet::parse(&copy).ok().filter(|_| matches!(code, NO_ERROR | NAME_ERROR));
        let found = found.as_ref().and_then(|packet| self.records(packet, opens));
        // A name that does not exist has no addresses.
        let found = found.filter(|(records, _)| {
            code == NO_ERROR || records.iter().all(|record| address(record).is_none())
        });
        let Some((mut records, dropped)) = found else {
            let (message, addresses, dropped) = (self.failure(), Vec::new(), Vec::new());
            return Some(GuestAnswer { message, addresses, dropped, is_truncated });
        };
        let (answers, is_cut) = self.fitting(&mut records)?;
        let flags = if is_truncated || is_cut { IS_TRUNCATED } else { 0 };
        let error = (!dropped.is_empty()).then_some(BLOCKED);
        let count = u16::try_from(records.len()).unwrap_or(RECORDS_MAX);
        let message = self.asker.reply(code, flags, error, (count, &answers));
        let addresses = records.iter().filter_map(|it| Some((address(it)?, it.ttl))).collect();
        Some(GuestAnswer { message, addresses, dropped, is_truncated })
    }

    /// The first bytes of a message, if it answers this question.
    fn header_of_answer(&self, message: &[u8]) -> Option<[u8; 4]> {
        let header: [u8; 4] = array(message, 0)?;
        let is_one = header[..2] == self.number.to_be_bytes() && word(message, 4)? == 1;
        let is_answer = header[2] & (IS_ANSWER | OPCODE) == IS_ANSWER;
        let is_own = message.get(HEADER_LEN..)?.starts_with(&self.section);
        (is_one && is_answer && is_own).then_some(header)
    }

    /// The records that the guest gets, aliases first, and the addresses that it does not get.
    fn records<'a>(
        &'a self,
        packet: &Packet<'a>,
        opens: impl Fn(IpAddr) -> bool,
    ) -> Option<(Vec<ResourceRecord<'a>>, Vec<IpAddr>)> {
        let (mut kept, end) = self.aliases(packet)?;
        let (aliases, mut dropped) = (kept.len(), Vec::new());
        let is_wanted = |it: &&ResourceRecord<'_>| is_fine(it) && it.name == *end;
        for record in packet.answers.iter().filter(is_wanted) {
            match (record.rdata.type_code().into(), address(record)) {
                (kind, _) if self.kind != kind => {}
                (_, Some(address)) if !meant(address).eq([address]) || !opens(address) => {
                    dropped.push(address);
                }
                (_, Some(_)) if kept.len() - aliases >= ADDRESSES_MAX => {}
                _ => kept.push(record),
            }
        }
        let question = &packet.questions.first()?.qname;
        let records = kept.into_iter().map(|record| {
            let is_its_own = record.name == *question;
            let name = if is_its_own { self.spelled_name() } else { record.name.clone() };
            ResourceRecord::new(name, CLASS::IN, ttl_s(record.ttl), record.rdata.clone())
        });
        Some((records.collect(), dropped))
    }

    /// The aliases from the name of the question on, and the name at their end; `None`: they lead
    /// in a circle, or too far.
    fn aliases<'p, 'a>(
        &self,
        packet: &'p Packet<'a>,
    ) -> Option<(Vec<&'p ResourceRecord<'a>>, &'p Name<'a>)> {
        let mut name = &packet.questions.first()?.qname;
        let mut aliases = Vec::new();
        while aliases.len() <= ALIASES_MAX {
            let next = packet.answers.iter().filter(|it| is_fine(it) && it.name == *name);
            let mut next = next.filter_map(|record| match &record.rdata {
                RData::CNAME(target) if self.kind != CNAME => Some((record, &target.0)),
                _ => None,
            });
            let Some((record, target)) = next.next() else { return Some((aliases, name)) };
            aliases.push(record);
            name = target;
        }
        None
    }

    /// The name of the question as the guest spelled it.
    fn spelled_name(&self) -> Name<'_> {
        let (mut labels, mut rest) = (Vec::new(), &self.asker.section[..]);
        while let Some((len, behind)) = rest.split_first().filter(|(len, _)| **len > 0) {
            let Some((label, behind)) = behind.split_at_checked((*len).into()) else { break };
            labels.push(Label::new_unchecked(label));
            rest = behind;
        }
        Name::new_with_labels(&labels)
    }

    /// As many records as the guest takes, as bytes behind its question, and whether some do not
    /// fit.
    fn fitting(&self, records: &mut Vec<ResourceRecord<'_>>) -> Option<(Vec<u8>, bool)> {
        let room = self.asker.len_max.saturating_sub(self.asker.reply_len());
        let count = records.len();
        loop {
            let answers = self.written(records)?;
            if answers.len() <= room {
                return Some((answers, records.len() < count));
            }
            let fewer = records.len() * room / answers.len();
            records.truncate(fewer.min(records.len().saturating_sub(1)));
        }
    }

    /// Records as they stand behind the guest's question, to whose name they point.
    fn written(&self, records: &[ResourceRecord<'_>]) -> Option<Vec<u8>> {
        let mut packet = Packet::new_reply(0);
        let kind = simple_dns::TYPE::from(self.kind).into();
        packet.questions.push(Question::new(self.spelled_name(), kind, CLASS::IN.into(), false));
        packet.answers = records.to_vec();
        let mut bytes = packet.build_bytes_vec_compressed().ok()?;
        bytes.drain(..bytes.len().min(HEADER_LEN + self.asker.section.len()));
        Some(bytes)
    }
}

/// A message whose sections behind the answers, and records beyond the first ones, do not exist.
fn without_rest(message: &[u8]) -> Vec<u8> {
    let mut copy = message[..message.len().min(u16::MAX.into())].to_vec();
    let count = word(message, 6).unwrap_or(0).min(RECORDS_MAX);
    if let Some(counts) = copy.get_mut(6..HEADER_LEN) {
        counts.fill(0);
        counts[..2].copy_from_slice(&count.to_be_bytes());
    }
    copy
}

/// Records of the internet, and no remains of one.
fn is_fine(record: &ResourceRecord<'_>) -> bool {
    let is_empty = matches!(record.rdata, RData::Empty(_));
    record.class == CLASS::IN && !record.cache_flush && !is_empty
}

fn address(record: &ResourceRecord<'_>) -> Option<IpAddr> {
    match &record.rdata {
        RData::A(a) => Some(IpAddr::V4(a.address.into())),
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.address.into())),
        _ => None,
    }
}

/// For how long a record may be remembered: no longer than it binds. A number with the first bit
/// set is none (RFC 2181 §8).
fn ttl_s(ttl: u32) -> u32 {
    if i32::try_from(ttl).is_ok() { ttl.min(BINDING_MAX_S) } else { 0 }
}
