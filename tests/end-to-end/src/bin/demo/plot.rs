//! A curve of one line.

const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One block for each sample, in eighths of the largest; only nothing at all is blank.
pub fn curve(samples: &[u64]) -> String {
    let most = samples.iter().copied().max().unwrap_or(0).max(1);
    let block = |sample: &u64| {
        let eighths = (sample * 8).div_ceil(most);
        BLOCKS[usize::try_from(eighths).unwrap_or(8).min(8)]
    };
    samples.iter().map(block).collect()
}

/// A line to stand below it: a mark in each of these columns, with its name.
pub fn marks<'a>(marks: impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut line = String::new();
    for (column, name) in marks {
        let length = line.chars().count();
        line.extend(std::iter::repeat_n(' ', column.saturating_sub(length)));
        line.push('▲');
        line.push_str(name);
    }
    line
}
