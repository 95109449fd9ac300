//! Messages → bytes. The fds of a request are sent beside them.

use super::{BACKEND_CONFIG_CHANGE, FLAG_NEED_REPLY, FLAG_REPLY, NO_FD, VERSION};
use crate::message::{CONFIG_LEN_MAX, MemoryRange, Message, Reply, Request};

/// The bytes of a request; its fds are [`Request::fds`].
pub fn encode(message: &Message) -> Vec<u8> {
    let flags = if message.reply_wanted { VERSION | FLAG_NEED_REPLY } else { VERSION };
    with_header(message.request.code(), flags, &request_payload(&message.request))
}

fn request_payload(request: &Request) -> Vec<u8> {
    match request {
        Request::SetFeatures(value)
        | Request::SetProtocolFeatures(value)
        | Request::NetSetMtu(value)
        | Request::SetStatus(value) => value.to_le_bytes().to_vec(),
        Request::SetMemTable(regions) => {
            let count = u32::try_from(regions.len()).unwrap_or(u32::MAX);
            let mut payload = words(&[count, 0]);
            for region in regions {
                payload.extend(region_bytes(region.range(), region.mmap_offset));
            }
            payload
        }
        Request::SetLogBase(area) => {
            [area.size, area.offset].into_iter().flat_map(u64::to_le_bytes).collect()
        }
        Request::SetDeviceStateFd(state) => words(&[state.direction, state.phase]),
        Request::SetVringNum { index, size: value }
        | Request::SetVringBase { index, base: value } => words(&[*index, *value]),
        Request::GetVringBase { index } => words(&[*index, 0]),
        Request::SetVringEnable { index, enable } => words(&[*index, u32::from(*enable)]),
        Request::SetVringAddr(at) => {
            let mut payload = words(&[at.index, at.flags]);
            for address in [at.descriptor, at.device, at.driver, at.log] {
                payload.extend(address.to_le_bytes());
            }
            payload
        }
        Request::SetVringKick(vring)
        | Request::SetVringCall(vring)
        | Request::SetVringErr(vring) => {
            let flag = if vring.fd.is_some() { 0 } else { NO_FD };
            (vring.index | flag).to_le_bytes().to_vec()
        }
        Request::SendRarp([a, b, c, d, e, f]) => vec![*a, *b, *c, *d, *e, *f, 0, 0],
        Request::GetConfig { offset, size, flags } => {
            let mut payload = words(&[*offset, *size, *flags]);
            payload.resize(payload.len() + (*size).min(CONFIG_LEN_MAX) as usize, 0);
            payload
        }
        Request::SetConfig { offset, flags, bytes } => config_bytes(*offset, *flags, bytes),
        Request::AddMemReg(region) => single_region(region.range(), region.mmap_offset),
        Request::RemMemReg(range) => single_region(*range, 0),
        _ => Vec::new(),
    }
}

fn single_region(range: MemoryRange, mmap_offset: u64) -> Vec<u8> {
    let mut payload = vec![0; 8];
    payload.extend(region_bytes(range, mmap_offset));
    payload
}

fn region_bytes(range: MemoryRange, mmap_offset: u64) -> Vec<u8> {
    let fields = [range.guest_address, range.size, range.user_address, mmap_offset];
    fields.iter().flat_map(|field| field.to_le_bytes()).collect()
}

fn config_bytes(offset: u32, flags: u32, bytes: &[u8]) -> Vec<u8> {
    let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut payload = words(&[offset, size, flags]);
    payload.extend(bytes);
    payload
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn with_header(code: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = words(&[code, flags, len]);
    bytes.extend(payload);
    bytes
}

/// The bytes of a reply. Its flags are version 1 and "reply", nothing else: User Mode Linux takes
/// anything more for a broken protocol.
pub fn encode_reply(code: u32, reply: &Reply) -> Vec<u8> {
    let payload = match reply {
        Reply::U64(value) => value.to_le_bytes().to_vec(),
        Reply::VringState { index, base } => words(&[*index, *base]),
        Reply::Log { size, offset } => {
            [size, offset].into_iter().flat_map(|word| word.to_le_bytes()).collect()
        }
        Reply::Config { offset, flags, bytes } => config_bytes(*offset, *flags, bytes),
        Reply::Empty => Vec::new(),
    };
    with_header(code, VERSION | FLAG_REPLY, &payload)
}

/// The request "the configuration space changed", for the back-end's own channel.
pub fn encode_config_change() -> Vec<u8> {
    with_header(BACKEND_CONFIG_CHANGE, VERSION, &[])
}
