//! ringway-vhost-user
