// SPDX-License-Identifier: Apache-2.0
//! Takes secrets out of text, rather too much than too little.

/// What stands where something was.
const REMOVED: &str = "(removed)";
/// Names of keys whose values are not shown; the three that name files are.
const SUSPICIOUS: [&str; 8] = ["pass", "secret", "token", "key", "cred", "auth", "community", "bearer"];
const FILES: [&str; 3] = ["token_file", "tls_cert", "tls_key"];
/// Shortest that is taken for a secret: anything shorter would be found everywhere.
const SHORTEST: usize = 8;

/// Without the given secrets, bearer tokens, passwords in addresses and private keys.
pub(super) fn text(text: &str, secrets: &[String]) -> String {
    let mut done = text.to_owned();
    for secret in secrets.iter().map(|secret| secret.trim()).filter(|secret| secret.len() >= SHORTEST) {
        done = done.replace(secret, REMOVED);
    }
    let mut inside_key = false;
    let lines = done.lines().filter_map(|line| {
        let begins = line.contains("-----BEGIN") && line.contains("PRIVATE KEY");
        let inside = inside_key || begins;
        inside_key = inside && !line.contains("-----END");
        match (inside, begins) {
            (true, true) => Some(format!("{REMOVED}\n")),
            (true, false) => None,
            _ => Some(format!("{}\n", user_info(&bearer(line)))),
        }
    });
    lines.collect()
}

/// `Bearer WORD` without the word.
fn bearer(line: &str) -> String {
    const SCHEME: &str = "bearer ";
    let mut done = String::new();
    let mut rest = line;
    while let Some(at) = rest.to_ascii_lowercase().find(SCHEME) {
        let (before, after) = rest.split_at(at + SCHEME.len());
        done += before;
        done += REMOVED;
        rest = after
            .trim_start()
            .split_once([' ', '"', '\'', ','])
            .map_or("", |(word, _)| after.trim_start().get(word.len()..).unwrap_or_default());
    }
    done + rest
}

/// `scheme://USER:PASSWORD@host` without both.
fn user_info(line: &str) -> String {
    let mut done = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("://") {
        done += before;
        done += "://";
        let end = after.find(['/', ' ', '"', '\'', '?', '#']).unwrap_or(after.len());
        let (authority, further) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => done.extend([REMOVED, "@", host]),
            None => done += authority,
        }
        rest = further;
    }
    done + rest
}

/// Tables and `key = value` of a configuration that is not good, line for line; comments, records and what is
/// neither are left out, and so are values of keys with suspicious names.
pub(super) fn configuration(text: &str) -> String {
    let (mut done, mut records, mut quoted) = (String::new(), false, false);
    for line in text.lines() {
        let toggles = (line.matches("\"\"\"").count() + line.matches("'''").count()) % 2 == 1;
        let was_quoted = quoted;
        quoted = was_quoted != toggles;
        let line = line.trim();
        if line.starts_with('[') && !was_quoted {
            records = line.replace(' ', "").starts_with("[[subscriber");
        }
        if records || was_quoted || quoted || line.is_empty() {
        } else if line.starts_with('[') {
            done += line.split('#').next().unwrap_or_default().trim();
        } else {
            done += &assignment(line).unwrap_or_default();
        }
        done.push('\n');
    }
    done
}

fn assignment(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if key.is_empty() || key.len() > 40 || !key.chars().all(bare) || value.starts_with('=') {
        return None;
    }
    let hidden =
        !FILES.contains(&key) && SUSPICIOUS.iter().any(|word| key.to_ascii_lowercase().contains(word));
    let value = if hidden || value.contains("BEGIN") { REMOVED } else { uncommented(value) };
    Some(format!("{key} = {value}"))
}

/// Up to a `#` outside of quotes.
fn uncommented(value: &str) -> &str {
    let mut quote = None;
    for (at, c) in value.char_indices() {
        match (quote, c) {
            (None, '#') => return value.get(..at).unwrap_or_default().trim_end(),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_recognisable_secrets_go_and_the_rest_stays() {
        let secrets = ["s3cret-of-this-box\n".to_owned(), "x".to_owned()];
        let before = "a x s3cret-of-this-box b\nAuthorization: Bearer abc.def, next\nhttp://me:pw@host/p?q and \
                      http://plain/\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nlast";
        let after = "a x (removed) b\nAuthorization: Bearer (removed), next\nhttp://(removed)@host/p?q and \
                     http://plain/\n(removed)\nlast\n";
        assert_eq!(text(before, &secrets), after);
        assert_eq!(text("bearer one bearer two", &[]), "bearer (removed) bearer (removed)\n");
    }

    #[test]
    fn a_bad_configuration_keeps_its_lines_and_loses_what_may_be_secret() {
        let before = "[api] # x\ntoken = \"abcdefgh\" # y\ntoken_file = \"/etc/t\" # z\nlisten = \"a#b\" # c\n# password: q\n\
                      [[subscriber]]\nid = \"who\"\n[store]\npath = \"\"\"\nhidden\n\"\"\"\nabc=\nYWJj==\nmy_password = 'p'\n";
        let after = "[api]\ntoken = (removed)\ntoken_file = \"/etc/t\"\nlisten = \"a#b\"\n\n\n\n[store]\n\n\n\nabc = \n\n\
                     my_password = (removed)\n";
        assert_eq!(configuration(before), after);
        assert_eq!(before.lines().count(), configuration(before).lines().count(), "line numbers stay true");
    }
}
