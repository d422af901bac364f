//! A supervisor whose standard error nobody reads any more.
use super::supervisor;
use crate::Case;
use crate::network::{Network, Plan};

pub fn cases(plan: Plan) -> [Case; 2] {
    [("unread", "full"), ("broken", "gone")].map(|(name, how)| {
        Case::new(plan.prefixed(&format!("parts/{name}")), move || {
            let network = Network::behind(&["python3", "-c", READER, how], plan, &[])?;
            supervisor::killed(&network)?;
            network.stop()
        })
    })
}

/// Becomes the program in its arguments. A child of its prints what that says until it is ready; then there is no reader any more
/// ("gone"), or one that doesn't read, and the pipe is full.
const READER: &str = "
import os, select, sys
how, program = sys.argv[1], sys.argv[2:]
read, write = os.pipe()
if os.fork():
    os.dup2(write, 2)
    os.close(read)
    os.close(write)
    os.execvp(program[0], program)
filler = os.open('/proc/self/fd/%d' % write, os.O_WRONLY | os.O_NONBLOCK)
os.close(write)
for line in os.fdopen(os.dup(read)):
    print(line, end='', flush=True)
    if 'ready' in line:
        break
if how == 'full':
    try:
        while True:
            os.write(filler, b'x')
    except BlockingIOError:
        os.close(filler)
    ended = select.poll()
    ended.register(read, 0)
    ended.poll()
";
