//! The library in front of User Mode Linux: a part of the processor's state is set as the whole.

use std::ffi::{c_int, c_long, c_void};
use std::fs;
use std::process::{Child, Command, Stdio};

use ringway_guests::uml::PRELOAD;

/// Set for the process that has it in front.
const VARIABLE: &str = "RINGWAY_TEST_TRACES";

/// From `sys/ptrace.h` and `elf.h`.
const DETACH: c_int = 17;
const GETREGSET: c_int = 0x4204;
const SETREGSET: c_int = 0x4205;
const SEIZE: c_int = 0x4206;
const INTERRUPT: c_int = 0x4207;
const NT_X86_XSTATE: usize = 0x202;

/// The shortest state that has a header: of a processor that knows nothing behind SSE.
const PART_LEN: usize = 576;
const STATE_LEN_MAX: usize = 1 << 15;

#[repr(C)]
struct Iovec {
    base: *mut c_void,
    len: usize,
}

unsafe extern "C" {
    fn ptrace(request: c_int, process: c_int, address: usize, data: *mut c_void) -> c_long;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
}

/// A process that waits, stopped by its tracer, this thread.
struct Traced(Child);

impl Traced {
    fn start() -> Self {
        let child = Command::new("sleep").arg("60").env_remove("LD_PRELOAD").spawn();
        let traced = Self(child.expect("sleep"));
        assert_eq!(traced.ask(SEIZE, 0, std::ptr::null_mut()), 0);
        assert_eq!(traced.ask(INTERRUPT, 0, std::ptr::null_mut()), 0);
        // SAFETY: it needs no status.
        unsafe { waitpid(traced.process(), std::ptr::null_mut(), 0) };
        traced
    }

    fn process(&self) -> c_int {
        self.0.id().cast_signed()
    }

    fn ask(&self, request: c_int, address: usize, data: *mut c_void) -> c_long {
        // SAFETY: requests of this file only, with the data that they take.
        unsafe { ptrace(request, self.process(), address, data) }
    }

    /// The beginning of its state is read, or set; how long it is, if that worked.
    fn state(&self, request: c_int, bytes: &mut [u8]) -> Option<usize> {
        let mut piece = Iovec { base: bytes.as_mut_ptr().cast(), len: bytes.len() };
        let result = self.ask(request, NT_X86_XSTATE, (&raw mut piece).cast());
        (result == 0).then_some(piece.len)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.ask(DETACH, 0, std::ptr::null_mut());
        // It may be gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a part can be set; if so, it is as it was set.
fn sets_a_part() -> bool {
    let traced = Traced::start();
    let mut whole = vec![0; STATE_LEN_MAX];
    let len = traced.state(GETREGSET, &mut whole).expect("read");
    assert!(len > PART_LEN, "this processor has nothing behind SSE");
    let mut part = whole[..PART_LEN].to_vec();
    // XMM0; and the header says that the registers of SSE are in use.
    part[160..176].fill(7);
    part[512] |= 2;
    let is_set = traced.state(SETREGSET, &mut part).is_some();
    let mut after = vec![0; STATE_LEN_MAX];
    assert_eq!(traced.state(GETREGSET, &mut after), Some(len));
    assert_eq!(after[160..176] == [7; 16], is_set);
    is_set
}

#[test]
fn a_part_of_the_state_is_set_as_the_whole() {
    if std::env::var_os(VARIABLE).is_some() {
        assert!(sets_a_part());
        return;
    }
    assert!(!sets_a_part(), "the system takes parts by itself: nothing need be in front");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let library = directory.path().join("xstate.so");
    fs::write(&library, PRELOAD).expect("written");
    let mut again = Command::new(std::env::current_exe().expect("this test"));
    again.args(["--exact", "a_part_of_the_state_is_set_as_the_whole", "--nocapture"]);
    let output = again.env("LD_PRELOAD", library).env(VARIABLE, "1").stdin(Stdio::null()).output();
    let output = output.expect("started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
