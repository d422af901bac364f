//! skink-udp
