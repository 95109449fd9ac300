//! The messages of each direction, in one table: number, name, fields.

use std::ops::RangeInclusive;

use super::field::{Bytes, Field, List, Reader, Text};
use super::{
    BadMessage, DROPS_MAX, Flaw, GIVEN_MAX, KNOWN_STATIONS_MAX, KnownStation, MESSAGE_FDS_MAX,
    MESSAGE_LEN_MAX, Offence, PIECE_LEN_MAX, REASON_LEN_MAX, SEEN_IPS_MAX, SETTINGS_LEN_MAX,
    SPEC_LEN_MAX, STATIONS_MAX, SeenIp, Station, TAP_FDS_MAX, Versions,
};
use crate::frame::{FDS_MAX, FRAME_LEN_MAX};
use crate::slots::{Keep, SLOT_LEN_MAX, SlotRange};

macro_rules! messages {
    ($(#[$of:meta])* $side:ident $($(#[$what:meta])* $kind:literal $name:ident
        { $($field:ident: $type:ty),* })*) => {
        $(#[$of])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // the fields are named for what they are
        pub enum $side {
            $($(#[$what])* $name { $($field: $type),* },)*
        }

        // Whatever is in its fields, a message fits.
        $(const _: () = assert!(0 $(+ <$type as Field>::LEN_MAX)* < MESSAGE_LEN_MAX);)*

        impl $side {
            /// The bytes.
            pub fn encode(&self) -> Vec<u8> {
                let mut out = Vec::new();
                match self {
                    $(Self::$name { $($field),* } => {
                        out.push($kind);
                        $($field.put(&mut out);)*
                    })*
                }
                out
            }

            /// The message of these bytes.
            ///
            /// # Errors
            /// They are none, and what is wrong.
            pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
                let (&kind, rest) = bytes.split_first().ok_or(BadMessage::Short)?;
                let mut reader = Reader(rest);
                let message = match kind {
                    $($kind => Self::$name { $($field: Field::take(&mut reader)?),* },)*
                    _ => return Err(BadMessage::Kind { kind }),
                };
                match reader.0.len() {
                    0 => Ok(message),
                    left => Err(BadMessage::TooLong { left }),
                }
            }
        }
    };
}

messages! {
    /// From the supervisor to the data plane.
    ToData
    /// The settings that hold for all ports; the first message of version 1.
    1 Config { settings: Bytes<SETTINGS_LEN_MAX> }
    /// A port, or one whose tap was opened anew, with the queues of its tap, and behind them a
    /// socket to ask about the interface with; or a router with the Unix sockets that lead into
    /// its guests. Its place exists already.
    2 Port { order: u32, port: u16, spec: Bytes<SPEC_LEN_MAX> }
    /// The port goes.
    3 Remove { order: u32, port: u16 }
    /// The port has other options; a router's Unix sockets, as with `Port`.
    4 Change { order: u32, port: u16, spec: Bytes<SPEC_LEN_MAX> }
    /// A front-end has come. The options are those of the moment it came, also in a replay.
    5 Link { order: u32, port: u16, link: u32, spec: Bytes<SPEC_LEN_MAX> }
    /// The front-end has gone.
    6 Unlink { order: u32, link: u32 }
    /// A request that was kept, with its fds; not answered.
    7 Slot { link: u32, slot: u16, bytes: Bytes<SLOT_LEN_MAX> }
    /// A request, with its fds. Answered by `Done`. One with a flaw is refused.
    8 Frame { link: u32, number: u32, flaw: Option<Flaw>, bytes: Bytes<FRAME_LEN_MAX> }
    /// Rings may start, at these positions where they are known; with the journal.
    9 Go { is_last: bool, positions: Bytes<PIECE_LEN_MAX> }
    /// Finish the visit, publish, call, and say where each ring stands. Then do nothing.
    10 Quiesce {}
    /// Tell the guests that their links are down: ringway ends. Answered by `Finished`.
    11 LinksDown { order: u32 }
    /// A line of the control socket. Answered by `Answer`.
    12 Ask { ask: u32, bytes: Bytes<PIECE_LEN_MAX> }
    /// That was all that there is. Answered by `Ready`.
    13 Replayed {}
    /// File descriptors that it was started with, by their numbers: one message before `Config`, or
    /// more. Those that no message has named when rings start are closed.
    14 Given { fds: List<u32, GIVEN_MAX> }
    /// Several messages, with numbers in the place of descriptors.
    15 Batch { parts: Bytes<PIECE_LEN_MAX> }
    /// The stations that the data plane before knew of this router. Before `Go`, in an upgrade once
    /// more with the last word of the old one; the last message counts.
    16 Stations { port: u16, stations: List<KnownStation, KNOWN_STATIONS_MAX> }
    /// Do all workers go on? Answered by `GoesOn`.
    17 DoesItGoOn {}
    /// The version that both speak, 3 at least; the first message.
    18 Speaks { version: u16 }
    /// Another process is about to take over: transfers of devices' states that have not ended
    /// soon have failed, so that no request stays outstanding.
    19 EndTransfers {}
}

messages! {
    /// From the data plane to the supervisor.
    ToSupervisor
    /// The versions that it knows; its first message.
    129 Hello { wire: Versions, journal: Versions }
    /// An order of that number was carried out, or why it was not. With `is_closing`, what a
    /// front-end had sent is still being closed: `Closed` follows.
    130 Finished {
        order: u32, is_told: bool, is_closing: bool, refusal: Option<Text<REASON_LEN_MAX>>
    }
    /// A request was carried out or refused: its reply, the slots that it makes needless, the slot
    /// in which it is kept. Drops come first. With `is_closing` no more is read before `Closed`,
    /// which takes as long as the sender of what is being closed likes.
    131 Done {
        link: u32, number: u32, is_closing: bool, reply: Option<Bytes<FRAME_LEN_MAX>>,
        keep: Option<Keep>, drops: List<SlotRange, DROPS_MAX>
    }
    /// These are not needed any more: a ring has gone on by itself.
    132 Forget { link: u32, drops: List<SlotRange, DROPS_MAX> }
    /// All that front-ends of this port had sent, and that was not needed any more, is closed.
    133 Closed { port: u16 }
    /// Everything was replayed; or it cannot work at all.
    134 Ready { refusal: Option<Text<REASON_LEN_MAX>> }
    /// Rings run.
    135 Running {}
    /// Where each ring stands: JSON that only data planes read. For each front-end and ring it has
    /// the word that `GET_VRING_BASE` tells, whether the ring ran, and whether it goes on there.
    136 Export { is_last: bool, positions: Bytes<PIECE_LEN_MAX> }
    /// To a question of that number.
    137 Answer { ask: u32, is_last: bool, bytes: Bytes<PIECE_LEN_MAX> }
    /// Please let go of this front-end.
    138 LetGo { link: u32, offence: Option<Offence>, why: Text<REASON_LEN_MAX> }
    /// The interface of this port's tap is gone.
    139 TapGone { port: u16 }
    /// It used the system call of that number, which the sandbox forbids, and ends by it.
    140 Forbidden { call: u32 }
    /// These stations are behind no port any more. Only where a tap has `fdb=sync`.
    141 Departed { stations: List<Station, STATIONS_MAX> }
    /// These IP addresses are used behind this port, as far as was seen. Only where a tap has
    /// `neighbours=sync`.
    142 SeenIps { port: u16, ips: List<SeenIp, SEEN_IPS_MAX> }
    /// The stations that this router knows; only to a supervisor that has sent `Given`.
    143 Stations { port: u16, stations: List<KnownStation, KNOWN_STATIONS_MAX> }
    /// All workers have answered.
    144 GoesOn {}
    /// A queue of this front-end's guest runs, and none did. `goes_on_at`: none has run before on
    /// this connection, and the base of the first one is not where a new ring begins. Of each
    /// front-end this or `Stopped` is said once more when a data plane has begun.
    145 Runs { link: u32, goes_on_at: Option<u32> }
    /// All queues of this front-end's guest have stopped. `is_migrating`: while what they wrote was
    /// marked.
    146 Stopped { link: u32, is_migrating: bool }
}

const _: () = assert!(FDS_MAX <= MESSAGE_FDS_MAX && TAP_FDS_MAX < MESSAGE_FDS_MAX);

impl ToData {
    /// How many file descriptors may come with it.
    pub fn fds(&self) -> RangeInclusive<usize> {
        match self {
            Self::Port { .. } => 0..=TAP_FDS_MAX + 1,
            Self::Change { .. } => 0..=TAP_FDS_MAX,
            Self::Slot { .. } | Self::Frame { .. } => 0..=FDS_MAX,
            Self::Go { is_last: true, .. } => 0..=1,
            // A file of captures, and a socket that says when they are to end.
            Self::Ask { .. } => 0..=2,
            _ => 0..=0,
        }
    }

    /// The message of these bytes, with which so many fds came.
    ///
    /// # Errors
    /// They are none, or not with so many.
    pub fn decode_with(bytes: &[u8], came: usize) -> Result<Self, BadMessage> {
        let message = Self::decode(bytes)?;
        if message.fds().contains(&came) { Ok(message) } else { Err(BadMessage::Fds { came }) }
    }
}
