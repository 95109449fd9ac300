//! A part of a frame in pieces of memory.

use ringway_virtq::SharedSlice;

/// `len` bytes behind the first `skip` bytes of some pieces, as far as these go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FramePart<'a> {
    pub pieces: &'a [SharedSlice],
    pub skip: usize,
    pub len: usize,
}

impl<'a> FramePart<'a> {
    /// The memory that it lies in.
    pub(crate) fn slices(self) -> impl Iterator<Item = SharedSlice> + use<'a> {
        let Self { pieces, mut skip, len: mut left } = self;
        let taken = pieces.iter().map_while(move |piece| {
            let (_, rest) = piece.split_at(skip.min(piece.len()));
            skip -= piece.len() - rest.len();
            let (taken, _) = rest.split_at(left.min(rest.len()));
            let is_over = left == 0;
            left -= taken.len();
            (!is_over).then_some(taken)
        });
        taken.filter(|taken| !taken.is_empty())
    }

    /// Copies it behind what is in `message`.
    pub(crate) fn copy_to(self, message: &mut Vec<u8>) {
        for taken in self.slices() {
            let start = message.len();
            message.resize(start + taken.len(), 0);
            taken.read(0, &mut message[start..]);
        }
    }
}
