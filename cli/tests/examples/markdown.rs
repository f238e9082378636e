//! The parts of a document that tests check: fenced blocks with the comment before each, links,
//! headings, and commands in the text.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

#[derive(Debug, Default)]
pub(crate) struct MarkdownDocument {
    pub blocks: Vec<FencedBlock>,
    /// Lines and targets of links and images.
    pub links: Vec<(usize, String)>,
    /// Lines and text of inline code.
    pub code: Vec<(usize, String)>,
    /// The valid anchors (`#...`) of links.
    pub anchors: Vec<String>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct FencedBlock {
    /// The number of its first line of text, from 1.
    pub line: usize,
    /// The word after the fence.
    pub language: String,
    pub text: String,
    /// The comment directly before it, without `<!--` and `-->`.
    pub comment: Option<String>,
}

impl MarkdownDocument {
    pub(crate) fn parse(text: &str) -> Self {
        let mut document = Self::default();
        let mut comment: Option<String> = None;
        let mut heading: Option<String> = None;
        let mut block: Option<FencedBlock> = None;
        let line = |offset: usize| text[..offset].matches('\n').count() + 1;
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::HtmlBlock) => comment = Some(String::new()),
                Event::Html(html) => comment.get_or_insert_default().push_str(&html),
                Event::End(TagEnd::HtmlBlock) => {}
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                    let comment = comment.take().and_then(|html| comment_text(&html));
                    let language = language.split([' ', ',']).next().unwrap_or_default().to_owned();
                    block = Some(FencedBlock {
                        line: line(range.start) + 1,
                        language,
                        text: String::new(),
                        comment,
                    });
                }
                Event::End(TagEnd::CodeBlock) => document.blocks.extend(block.take()),
                Event::Text(part) => {
                    if let Some(block) = &mut block {
                        block.text.push_str(&part);
                    }
                    if let Some(heading) = &mut heading {
                        heading.push_str(&part);
                    }
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    document.code.push((line(range.start), code.into_string()));
                }
                Event::Start(Tag::Heading { .. }) => (heading, comment) = (Some(String::new()), None),
                Event::End(TagEnd::Heading(_)) => {
                    document.anchors.extend(heading.take().map(|heading| anchor(&heading)));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    document.links.push((line(range.start), dest_url.into_string()));
                }
                Event::Start(_) => comment = None,
                _ => {}
            }
        }
        document
    }
}

fn comment_text(html: &str) -> Option<String> {
    let inner = html.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    Some(inner.trim().to_owned())
}

/// The anchor of a heading, as the sites that show Markdown generate it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().to_lowercase();
    let letters =
        letters.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
    letters.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn parse_finds_blocks_with_comments_links_code_and_anchors() {
    let document = MarkdownDocument::parse(
        "# A `b`: c\n\n<!-- run -->\n```sh\none\ntwo\n```\n\n<!-- gone -->\ntext `x y` [l](a.md#b)\n\n```text\nout\n```\n\
         <!-- run: here\nbefore -->\n\n```\nthree\n```\n",
    );
    let block = |line, language: &str, text: &str, comment: Option<&str>| FencedBlock {
        line,
        language: language.to_owned(),
        text: text.to_owned(),
        comment: comment.map(str::to_owned),
    };
    assert_eq!(
        document.blocks,
        [
            block(5, "sh", "one\ntwo\n", Some("run")),
            block(13, "text", "out\n", None),
            block(19, "", "three\n", Some("run: here\nbefore")),
        ]
    );
    assert_eq!(document.links, [(10, "a.md#b".to_owned())]);
    assert_eq!(document.code, [(1, "b".to_owned()), (10, "x y".to_owned())]);
    assert_eq!(document.anchors, ["a-b-c"]);
}
