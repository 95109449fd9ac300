//! What a front-end sends: bytes to messages, and messages to a session.

use ringway_vhost_user::{Applied, Effect, Offer, Session, codec};
use ringway_virtq::Position;

/// Bytes of a message's header: request, flags, payload length.
const HEADER_LEN: usize = 12;

/// Most messages of one input.
const MESSAGES_MAX: usize = 64;

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

/// A sequence of messages: each is a request number, a length and a payload.
pub(crate) fn session(data: &[u8]) {
    let mut session = Session::new(Offer {
        features: 0x0000_0005_7500_7fff,
        queue_pairs_max: 1,
        has_control_queue: true,
        config: vec![0; 24],
        memory_slots_max: 509,
    });
    let mut running = [false; 3];
    let mut rest = data;
    for _ in 0..MESSAGES_MAX {
        let [request, len, behind @ ..] = rest else { return };
        let (payload, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let Ok(message) = codec::decode(&message(*request, payload), Vec::new()) else { continue };
        let outcome = session.handle(message);
        let mut applied = Applied::OK;
        for effect in outcome.effects {
            match effect {
                Effect::StartQueue { index, .. } => running[usize::from(index)] = true,
                Effect::StopQueue { index } => {
                    running[usize::from(index)] = false;
                    applied.stopped.push((index, Position::FRESH));
                }
                _ => {}
            }
        }
        let _ = session.complete(outcome.pending, applied);
        let believed: Vec<u16> = session.running().collect();
        let started = (0..3u16).filter(|&index| running[usize::from(index)]);
        assert_eq!(believed, started.collect::<Vec<_>>(), "who runs");
    }
}

fn message(request: u8, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER_LEN + payload.len());
    bytes.extend(u32::from(request).to_le_bytes());
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(payload);
    bytes
}
