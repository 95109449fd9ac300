//! Several messages in one, with numbers in the place of file descriptors: those that a data plane
//! was started with, and was told of ([`ToData::Given`]). So nothing has to be on its way between
//! processes, of which the kernel allows each user only so many.

use super::field::{Field, Reader};
use super::{BadMessage, Bytes, List, MESSAGE_FDS_MAX, PIECE_LEN_MAX, ToData};

/// Descriptors of one message, by their numbers.
type Numbers = List<u32, MESSAGE_FDS_MAX>;
/// One message.
type Message = Bytes<PIECE_LEN_MAX>;

/// Messages that are put together, each with the numbers of its descriptors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// Appends one. `false`: there is no room for it behind the others, or it is too long for any.
    pub fn push(&mut self, message: &[u8], fds: &[u32]) -> bool {
        let (Some(message), Some(fds)) = (Message::new(message.into()), Numbers::new(fds.into()))
        else {
            return false;
        };
        let before = self.0.len();
        message.put(&mut self.0);
        fds.put(&mut self.0);
        let fits = self.0.len() <= PIECE_LEN_MAX;
        if !fits {
            self.0.truncate(before);
        }
        fits
    }

    /// The message that they are together; `None`: there are none.
    pub fn take(&mut self) -> Option<ToData> {
        let parts = Bytes::new(std::mem::take(&mut self.0))?;
        (!parts.as_slice().is_empty()).then_some(ToData::Batch { parts })
    }

    /// The messages in the field of [`ToData::Batch`].
    ///
    /// # Errors
    /// They are none, and what is wrong with the first that is not.
    pub fn parts(bytes: &[u8]) -> Result<Vec<(ToData, Vec<u32>)>, BadMessage> {
        let (mut reader, mut parts) = (Reader(bytes), Vec::new());
        while !reader.0.is_empty() {
            let message = Message::take(&mut reader)?;
            let fds = Numbers::take(&mut reader)?.into_inner();
            match ToData::decode_with(message.as_slice(), fds.len())? {
                ToData::Batch { .. } | ToData::Given { .. } => return Err(BadMessage::Value),
                message => parts.push((message, fds)),
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(len: usize) -> ToData {
        ToData::Slot { link: 1, slot: 2, bytes: Bytes::new(vec![7; len]).unwrap() }
    }

    #[test]
    fn what_is_put_together_comes_apart_again() {
        let mut batch = Batch::default();
        assert_eq!(batch.take(), None);
        assert!(batch.push(&slot(20).encode(), &[40, 3]) && batch.push(&[10], &[]));
        let Some(ToData::Batch { parts }) = batch.take() else { panic!("two of them") };
        let parts = Batch::parts(parts.as_slice()).unwrap();
        assert_eq!(parts, [(slot(20), vec![40, 3]), (ToData::Quiesce {}, vec![])]);
        assert_eq!(batch, Batch::default());
    }

    #[test]
    fn what_has_no_room_changes_nothing() {
        let mut batch = Batch::default();
        let message = slot(4096).encode();
        let count = (0..).take_while(|_| batch.push(&message, &[9; 32])).count();
        assert_eq!(count, PIECE_LEN_MAX / (message.len() + 2 + 2 + 32 * 4));
        assert!(!batch.push(&vec![0; PIECE_LEN_MAX + 1], &[]));
        let Some(ToData::Batch { parts }) = batch.take() else { panic!("some of them") };
        assert_eq!(Batch::parts(parts.as_slice()).unwrap().len(), count);
    }

    #[test]
    fn what_is_no_batch_is_refused() {
        let batch = |message: &ToData, fds: &[u32]| {
            let mut batch = Batch::default();
            assert!(batch.push(&message.encode(), fds));
            batch.0
        };
        let nested = ToData::Batch { parts: Bytes::default() };
        assert_eq!(Batch::parts(&batch(&nested, &[])), Err(BadMessage::Value));
        let one_too_many = batch(&ToData::Quiesce {}, &[3]);
        assert_eq!(Batch::parts(&one_too_many), Err(BadMessage::Fds { came: 1 }));
        assert_eq!(Batch::parts(&one_too_many[..3]), Err(BadMessage::Short));
    }
}
