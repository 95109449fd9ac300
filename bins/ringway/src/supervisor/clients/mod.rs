//! Clients of the control socket, and their requests.

pub mod accept_backoff;
pub mod control_client;
pub mod control_clients;
pub mod control_socket;
pub mod requests;
