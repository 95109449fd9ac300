//! What a front-end sends: bytes to messages.

use ringway_vhost_user::codec;

/// Bytes of a message's header: request, flags, payload length.
const HEADER_LEN: usize = 12;

/// Any bytes as one message, whole and cut.
pub(crate) fn codec(data: &[u8]) {
    let _ = codec::decode(data, Vec::new());
    let _ = codec::split(data);
    let Some((&request, payload)) = data.split_first() else { return };
    if let Ok(message) = codec::decode(&message(request, payload), Vec::new()) {
        // What was understood can be said again, and means the same.
        let again = codec::decode(&codec::encode(&message), Vec::new());
        if !matches!(message.request, ringway_vhost_user::Request::Malformed { .. }) {
            assert!(again.is_ok_and(|again| again.request.code() == message.request.code()));
        }
    }
}

/// A message that wants a reply.
pub(crate) fn message(request: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    bytes.extend(u32::from(request).to_le_bytes());
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(payload);
    bytes
}
