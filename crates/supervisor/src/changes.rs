//! Changes of ports' options that a data plane has not answered yet: one that it refuses is taken
//! back, and no other one.
//!
//! How: a port has its new options at once. Where another change was ordered meanwhile, that one
//! decides, and goes back behind both if it is refused, too.

/// A change that is not answered yet. `S`: options of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change<S> {
    /// The number of the port, which may be another one's by the time of the answer.
    pub port: u16,
    /// Its name, which stays.
    pub name: String,
    /// Its options before.
    pub before: S,
    /// As the file had them before; `None`: it is not the file's.
    pub from_file: Option<S>,
    /// The file has asked for it.
    pub is_of_file: bool,
}

/// The mending of a change that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo<S> {
    /// Options of the port, as before. `None`: a later change decides.
    spec: Option<S>,
    /// As the file had them. `None`: the file has not asked for it, or a later change decides.
    in_file: Option<Option<S>>,
}

impl<S> Change<S> {
    /// Whether this is a change of the port that has that number and that name.
    pub fn is_of(&self, port: u16, name: &str) -> bool {
        self.port == port && self.name == name
    }

    /// The data plane has refused it. `later`: changes of the same port that are not answered, the
    /// oldest one first.
    pub fn is_refused<'a>(self, later: impl Iterator<Item = &'a mut Self>) -> Undo<S>
    where
        S: 'a,
    {
        let mut undo =
            Undo { spec: Some(self.before), in_file: self.is_of_file.then_some(self.from_file) };
        for later in later {
            if let Some(before) = undo.spec.take() {
                later.before = before;
            }
            if later.is_of_file
                && let Some(from_file) = undo.in_file.take()
            {
                later.from_file = from_file;
            }
        }
        undo
    }
}

impl<S> Undo<S> {
    /// Carries it out at a port; the options that were refused, where others count now.
    pub fn apply(self, spec: &mut S, in_file: &mut Option<S>) -> Option<S> {
        if let Some(from_file) = self.in_file.filter(|_| in_file.is_some()) {
            // The next time it may be possible, so the file still says something new.
            *in_file = from_file;
        }
        Some(std::mem::replace(spec, self.spec?))
    }
}
