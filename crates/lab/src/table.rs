//! A small table as text, as psql lays it out.
//!
//! Owns: the widths of columns. Never: knows what is in it.

/// Lays out `lines`, the first being the names of the columns; all have equally many fields.
pub fn layout(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let fields: Vec<String> =
            line.iter().zip(&widths).map(|(field, width)| format!(" {field:<width$} ")).collect();
        text.push_str(fields.join("|").trim_end());
        text.push('\n');
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            text.push_str(&rules.join("+"));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_laid_out_as_psql_does() {
        let line = |a: &str, b: &str| vec![a.to_owned(), b.to_owned()];
        let text = layout(&[line("name", "sold"), line("kite no. 7", "12")]);
        assert_eq!(text, " name       | sold\n------------+------\n kite no. 7 | 12\n");
    }
}
