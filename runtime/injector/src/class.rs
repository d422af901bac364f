use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What kind of fault is injected. The names are those of the injector that was used for Rio, Nooks and
/// MINIX 3 where it has the class.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// One of 32 bits is flipped.
    Text,
    /// The instruction is deleted.
    Nop,
    /// A bit that says the destination is flipped.
    Dst,
    /// A bit that says a source is flipped.
    Src,
    /// A conditional jump, a loop or a rep prefix is deleted.
    Branch,
    /// A bit of a memory operand other than the stack frame's is flipped.
    Ptr,
    /// The condition of a jump is inverted, or that of a rep prefix.
    Loop,
    /// The load of an argument is deleted.
    Interface,
    /// The initialisation of a local is deleted.
    Init,
    /// A breakpoint trap.
    Stop,
    /// The jump to the panic of a check, such as that of bounds, is deleted.
    Bounds,
    /// An immediate before a conditional jump is off by one.
    OffByOne,
    /// A lock prefix is dropped.
    Lock,
    /// A copy takes too many bytes.
    Copy,
    /// One of the classes above, each as likely.
    Random,
    /// A random word of private writable memory other than the stack.
    Heap,
    /// A random word of the stack.
    Stack,
    /// Memory can't be had any more.
    Alloc,
    /// The process is killed.
    Kill,
    /// The process is stopped.
    Hang,
}

/// How a fault of a class is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Means {
    /// An instruction is changed.
    Code,
    /// Memory is changed.
    Memory,
    /// The process is treated as a whole.
    Process,
}

impl Class {
    /// All of them; those that change an instruction come first.
    pub const ALL: [Class; 20] = [
        Class::Text,
        Class::Nop,
        Class::Dst,
        Class::Src,
        Class::Branch,
        Class::Ptr,
        Class::Loop,
        Class::Interface,
        Class::Init,
        Class::Stop,
        Class::Bounds,
        Class::OffByOne,
        Class::Lock,
        Class::Copy,
        Class::Random,
        Class::Heap,
        Class::Stack,
        Class::Alloc,
        Class::Kill,
        Class::Hang,
    ];

    /// Those that change an instruction, without [`Class::Random`].
    pub const CODE: &'static [Class] = Class::ALL.split_at(14).0;

    /// Its word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Class::Text => "text",
            Class::Nop => "nop",
            Class::Dst => "dst",
            Class::Src => "src",
            Class::Branch => "branch",
            Class::Ptr => "ptr",
            Class::Loop => "loop",
            Class::Interface => "interface",
            Class::Init => "init",
            Class::Stop => "stop",
            Class::Bounds => "bounds",
            Class::OffByOne => "offbyone",
            Class::Lock => "lock",
            Class::Copy => "copy",
            Class::Random => "random",
            Class::Heap => "heap",
            Class::Stack => "stack",
            Class::Alloc => "alloc",
            Class::Kill => "kill",
            Class::Hang => "hang",
        }
    }

    /// How faults of it are made.
    pub fn means(self) -> Means {
        match self {
            Class::Text
            | Class::Nop
            | Class::Dst
            | Class::Src
            | Class::Branch
            | Class::Ptr
            | Class::Loop
            | Class::Interface
            | Class::Init
            | Class::Stop
            | Class::Bounds
            | Class::OffByOne
            | Class::Lock
            | Class::Copy
            | Class::Random => Means::Code,
            Class::Heap | Class::Stack => Means::Memory,
            Class::Alloc | Class::Kill | Class::Hang => Means::Process,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Class {
    type Err = String;

    fn from_str(text: &str) -> Result<Class, String> {
        let found = Class::ALL.into_iter().find(|class| class.word() == text);
        found.ok_or_else(|| {
            let words = Class::ALL.map(Class::word).join(", ");
            format!("there is no class of faults called {text}; there are {words}")
        })
    }
}
