//! skink-ip
