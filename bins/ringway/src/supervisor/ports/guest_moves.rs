//! Whether the guest of a port is here, and how often guests came by migration, and went.
//!
//! A guest has gone by migration if its rings stopped while what they wrote was marked, and did not
//! run again before the connection ended. One has come if the first ring of a new connection goes
//! on where no new ring begins. It has not if the connection before has ended while its guest ran:
//! then it is that guest, whose front-end has connected again.
//!
//! Limits: a ringway that was started anew knows of no connection before.

use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestMoves {
    /// Its queues have stopped, or have not run yet.
    pub is_stopped: bool,
    /// They did while its memory was copied.
    is_migrating: bool,
    /// They have run on this connection, also under a data plane before.
    has_run: bool,
    /// The connection before has ended while they ran.
    has_left_running: bool,
    pub came: u64,
    pub went: u64,
}

impl GuestMoves {
    /// A front-end has come. `is_told`: the data plane says when its guest runs.
    pub fn begin(&mut self, is_told: bool) {
        (self.is_stopped, self.is_migrating, self.has_run) = (is_told, false, false);
    }

    /// A queue runs: where a guest goes on that has come by migration.
    pub fn runs(&mut self, goes_on_at: Option<u32>) -> Option<u32> {
        (self.is_stopped, self.is_migrating) = (false, false);
        let is_first = !std::mem::replace(&mut self.has_run, true);
        let came_at = goes_on_at.filter(|_| is_first && !self.has_left_running);
        self.came += u64::from(came_at.is_some());
        came_at
    }

    /// All queues have stopped. A data plane that follows says so once more, and does not know why.
    pub fn stopped(&mut self, is_migrating: bool) {
        self.is_migrating |= is_migrating;
        self.is_stopped = true;
    }

    /// The front-end has gone.
    pub fn end(&mut self) {
        self.went += u64::from(self.is_stopped && self.is_migrating);
        if std::mem::take(&mut self.has_run) {
            self.has_left_running = !self.is_stopped;
        }
        (self.is_stopped, self.is_migrating) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection: where it goes on, and how it stopped before its end, if it did.
    type Connection = (Option<u32>, &'static [bool]);

    #[test]
    fn guests_come_and_go_by_migration_and_not_by_connecting_again() {
        let table: [(&str, &[Connection], [u64; 2]); 7] = [
            ("one that is started, and shut down", &[(None, &[false])], [0, 0]),
            ("one that comes, and goes", &[(Some(7), &[true])], [1, 1]),
            ("a data plane ends meanwhile", &[(None, &[true, false])], [0, 1]),
            ("its front-end connects again", &[(None, &[]), (Some(7), &[])], [0, 0]),
            ("again and again", &[(None, &[]), (Some(7), &[]), (Some(9), &[true])], [0, 1]),
            ("it goes, and comes back", &[(None, &[true]), (Some(7), &[])], [1, 1]),
            ("another one comes", &[(None, &[false]), (Some(7), &[false])], [1, 0]),
        ];
        for (case, connections, counts) in table {
            let mut moves = GuestMoves::default();
            for (goes_on_at, stops) in connections {
                moves.begin(true);
                assert!(moves.is_stopped, "{case}");
                moves.runs(*goes_on_at);
                stops.iter().for_each(|is_migrating| moves.stopped(*is_migrating));
                moves.end();
                // One that never gets as far changes nothing.
                moves.begin(true);
                moves.end();
            }
            assert_eq!([moves.came, moves.went], counts, "{case}");
        }
    }

    #[test]
    fn a_guest_that_stays_has_not_gone() {
        let mut moves = GuestMoves::default();
        moves.begin(true);
        moves.runs(None);
        moves.stopped(true);
        // The next data plane does not know that it has run.
        assert_eq!(moves.runs(Some(7)), None);
        moves.end();
        assert_eq!((moves.came, moves.went), (0, 0));
        moves.begin(false);
        assert!(!moves.is_stopped, "nothing is said of it");
    }
}
