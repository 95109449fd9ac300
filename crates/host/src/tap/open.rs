//! How a tap comes into being: created, adopted, or passed by another program.
//!
//! The send buffer is set to the largest value: a smaller one makes writes fail for as long as
//! packets of ours wait somewhere in the host, which would hold up all other traffic to the tap.
//!
//! Limits: a tap that was passed has one queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use ringway_net::HEADER_LEN;
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::tap::Tap;
use crate::tap::error::TapError;
use crate::tap::ioctl;

/// The name and the MTU of a tap.
#[derive(Debug, Clone, Default)]
pub struct TapOptions {
    /// Name of the interface, at most 15 bytes; `%d` at its end becomes a free number.
    pub name: String,
    /// MTU in bytes of a tap that has to be created; one that exists keeps its own.
    pub mtu: Option<u16>,
}

impl Tap {
    /// Opens the tap of that name: an existing one if there is one, else one that vanishes with
    /// the returned value. It is brought up if that is permitted.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open(options: &TapOptions) -> Result<Self, TapError> {
        Self::open_first(options, 1)
    }

    /// As [`open`](Self::open), with so many queues (`IFF_MULTI_QUEUE`), at least one. The kernel
    /// spreads flows over them by the queue that last sent to the flow.
    ///
    /// # Errors
    /// See [`TapError`]; there is an interface that was made for fewer queues.
    pub fn open_queues(options: &TapOptions, count: u16) -> Result<Vec<Self>, TapError> {
        let mut queues = vec![Self::open_first(options, count)?];
        for _ in 1..count {
            queues.push(queues[0].open_further()?);
        }
        Ok(queues)
    }

    /// The same queue once more, to be written to by another thread. Reading from both would mix
    /// up the order of packets.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub fn duplicate(&self) -> io::Result<Self> {
        let interfaces = self.interfaces().map(|fd| fd.try_clone_to_owned()).transpose()?;
        let fd = self.as_fd().try_clone_to_owned()?;
        let mut other = Self::new(fd, self.name().to_owned(), interfaces);
        other.complete_all(!self.accepts_csum());
        Ok(other)
    }

    fn open_further(&self) -> Result<Self, TapError> {
        let name = self.name();
        let os = |source| TapError::Os { name: name.to_owned(), what: "socket", source };
        let fd = open_driver(name)?;
        attach(fd.as_fd(), name, 2)?;
        prepare(fd.as_fd(), name)?;
        let interfaces = self.interfaces().map(|fd| fd.try_clone_to_owned()).transpose();
        Ok(Self::new(fd, name.to_owned(), interfaces.map_err(os)?))
    }

    fn open_first(options: &TapOptions, queues: u16) -> Result<Self, TapError> {
        let name = options.name.as_str();
        check_name(name)?;
        let os = |what| move |source| TapError::Os { name: name.to_owned(), what, source };
        let interfaces = interface_socket().map_err(os("socket"))?;
        let exists = ioctl::interface_flags(interfaces.as_fd(), name).is_ok();
        let opened = open_driver(name).and_then(|fd| {
            let name = attach(fd.as_fd(), name, queues)?;
            Ok((fd, name))
        });
        let (fd, name) = opened.map_err(|why| match why {
            // No permission helps then.
            TapError::PermissionDenied { name }
                if ioctl::is_tap(interfaces.as_fd(), &name) == Some(false) =>
            {
                TapError::NotATap { name }
            }
            why => why,
        })?;
        prepare(fd.as_fd(), &name)?;
        bring_up(interfaces.as_fd(), &name, options.mtu.filter(|_| !exists), exists)?;
        Ok(Self::new(fd, name, Some(interfaces)))
    }

    /// Takes over a tap that another program opened and passed: a copy of the fd of that number,
    /// which this process was started with. The original stays open until the process ends. It is
    /// made non-blocking; name, MTU and link stay as they are.
    ///
    /// # Errors
    /// No such fd is open, it is not a tap, or one without `IFF_VNET_HDR`; see [`TapError`].
    pub fn from_raw_fd_number(number: RawFd) -> Result<Self, TapError> {
        let name = format!("fd {number}");
        match ioctl::duplicate(number) {
            Ok(fd) => Self::from_passed(fd, name),
            Err(source) => Err(TapError::Os { name, what: "not open", source }),
        }
    }

    fn from_passed(fd: OwnedFd, number: String) -> Result<Self, TapError> {
        let Ok((name, flags)) = ioctl::attached(fd.as_fd()) else {
            return Err(TapError::NotATap { name: number });
        };
        if flags & libc::IFF_TAP == 0 {
            return Err(TapError::NotATap { name });
        }
        if flags & libc::IFF_VNET_HDR == 0 {
            return Err(TapError::NoHeader { name });
        }
        let status = rustix::fs::fcntl_getfl(&fd);
        status.and_then(|status| rustix::fs::fcntl_setfl(&fd, status | OFlags::NONBLOCK)).map_err(
            |why| TapError::Os { name: name.clone(), what: "O_NONBLOCK", source: why.into() },
        )?;
        prepare(fd.as_fd(), &name)?;
        let interfaces = socket_in_namespace_of(fd.as_fd(), &name);
        Ok(Self::new(fd, name, interfaces))
    }
}

/// Sets up what both an opened and a passed tap need.
fn prepare(fd: BorrowedFd<'_>, name: &str) -> Result<(), TapError> {
    let os = |what| move |source| TapError::Os { name: name.to_owned(), what, source };
    ioctl::set_header_len(fd, HEADER_LEN).map_err(os("TUNSETVNETHDRSZ"))?;
    match ioctl::set_header_little_endian(fd) {
        Err(why) if cfg!(target_endian = "big") => return Err(os("TUNSETVNETLE")(why)),
        // A kernel without this call uses the machine's order, which is the same here.
        _ => {}
    }
    // Without it the limit stays as it was.
    let _ = ioctl::set_send_buffer_len(fd, libc::c_int::MAX);
    ioctl::set_offload(fd, 0).map_err(os("TUNSETOFFLOAD"))
}

fn bring_up(
    interfaces: BorrowedFd<'_>,
    name: &str,
    mtu: Option<u16>,
    was_there: bool,
) -> Result<(), TapError> {
    if let Some(mtu) = mtu {
        ioctl::set_interface_mtu(interfaces, name, mtu).map_err(|source| TapError::Mtu {
            name: name.to_owned(),
            mtu,
            source,
        })?;
    }
    let up = ioctl::interface_flags(interfaces, name).and_then(|flags| {
        if flags & libc::IFF_UP != 0 {
            return Ok(());
        }
        ioctl::set_interface_flags(interfaces, name, flags | libc::IFF_UP)
    });
    match up {
        // The owner of a tap may use it without being allowed to configure it.
        Err(_) if was_there => Ok(()),
        up => up.map_err(|source| TapError::Os {
            name: name.to_owned(),
            what: "bringing it up",
            source,
        }),
    }
}

/// A passed tap may be in another network namespace, where its name means something else.
fn socket_in_namespace_of(tap: BorrowedFd<'_>, name: &str) -> Option<OwnedFd> {
    let interfaces = interface_socket().ok()?;
    let own = ioctl::interface_address(tap, "").ok()?;
    let here = ioctl::interface_address(interfaces.as_fd(), name).ok()?;
    (own == here).then_some(interfaces)
}

fn check_name(name: &str) -> Result<(), TapError> {
    let owned = || name.to_owned();
    if name.len() >= libc::IFNAMSIZ {
        return Err(TapError::NameTooLong { name: owned() });
    }
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/:".contains(&byte);
    if name.is_empty() || name == "." || name == ".." || !name.bytes().all(is_plain) {
        return Err(TapError::BadName { name: owned() });
    }
    Ok(())
}

fn open_error(name: &str, source: io::Error) -> TapError {
    let name = name.to_owned();
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => TapError::NoDriver { name },
        Some(libc::EACCES | libc::EPERM) => TapError::PermissionDenied { name },
        _ => TapError::Os { name, what: "/dev/net/tun", source },
    }
}

fn open_driver(name: &str) -> Result<OwnedFd, TapError> {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open("/dev/net/tun", flags, Mode::empty())
        .map_err(|why| open_error(name, why.into()))
}

fn attach(fd: BorrowedFd<'_>, name: &str, queues: u16) -> Result<String, TapError> {
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let several = flags | libc::IFF_MULTI_QUEUE;
    let mut attached = ioctl::attach(fd, name, if queues > 1 { several } else { flags });
    let is_other_kind =
        attached.as_ref().is_err_and(|why| why.raw_os_error() == Some(libc::EINVAL));
    if is_other_kind && queues > 1 {
        return Err(TapError::OneQueue { name: name.to_owned() });
    }
    // A tap that was created for several queues can only be opened as such; one is used.
    if is_other_kind {
        attached = ioctl::attach(fd, name, several);
    }
    attached.map_err(|source| {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TapError::PermissionDenied { name },
            Some(libc::EBUSY) => TapError::Busy { name },
            Some(libc::EINVAL | libc::EEXIST) => TapError::NotATap { name },
            _ => TapError::Os { name, what: "TUNSETIFF", source },
        }
    })
}

/// Any socket will do: it stands for the network namespace of the thread that made it.
fn interface_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    // One end of a pair whose other end is closed: nothing can be sent with it.
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(pair.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data plane has it, too, which is to reach no other process.
    #[test]
    fn nothing_can_be_sent_with_the_socket_that_asks_about_interfaces() {
        use rustix::net::{SendFlags, SocketAddrUnix, bind, sendto, socket};
        let name = format!("ringway-interfaces-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("short");
        let other = socket(AddressFamily::UNIX, SocketType::DGRAM, None).expect("a socket");
        bind(&other, &address).expect("a name that is free");
        let asks = interface_socket().expect("a socket");
        assert!(ioctl::interface_flags(asks.as_fd(), "lo").is_ok(), "it asks");
        sendto(&asks, b"a word", SendFlags::NOSIGNAL, &address).expect_err("it is not heard");
    }

    #[test]
    fn bad_names_are_refused_before_anything_is_opened() {
        let message = |name: &str| check_name(name).expect_err(name).to_string();
        assert_eq!(
            message("a-very-long-name"),
            "a-very-long-name: an interface name has at most 15 bytes, this one has 16"
        );
        for name in ["", ".", "..", "a/b", "a b", "a:1", "a\0", "t\u{e4}p"] {
            assert!(message(name).contains("not an interface name"), "{name:?}");
        }
        assert!(check_name("fifteen-bytes-x").is_ok());
    }

    #[test]
    fn each_failure_says_what_to_do() {
        let failure = |code| open_error("tap0", io::Error::from_raw_os_error(code)).to_string();
        assert_eq!(
            failure(libc::EPERM),
            "tap0: permission denied: run as root, grant CAP_NET_ADMIN, or create it first with: \
             ip tuntap add tap0 mode tap user $USER vnet_hdr"
        );
        assert_eq!(
            failure(libc::ENOENT),
            "tap0: no /dev/net/tun: load the driver first with: modprobe tun"
        );
    }
}
