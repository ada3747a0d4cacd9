//! What each format takes for text, by small examples.

use crate::engines::{read, shown, write};
use peregrine_document::{Document, Error, Format, Options, Translated};

/// The blocks of a document as text with marks.
fn blocks(text: &str, format: Format, options: &Options) -> Vec<String> {
    read(text.as_bytes(), format, options).blocks().iter().map(shown).collect()
}

fn with(change: impl FnOnce(&mut Options)) -> Options {
    let mut options = Options::default();
    change(&mut options);
    options
}

#[test]
fn text() {
    let plain = Options::default();
    let text = "\u{feff}  - One two\r\n\r\n12. three\n\tfour\tfive\n> > six \n\x0cseven\n---\n42\n";
    assert_eq!(
        blocks(text, Format::Text, &plain),
        ["One two", "three", "four", "five", "six", "seven"]
    );
    let wrapped = with(|options| options.wrapped = true);
    assert_eq!(
        blocks("One\r\ntwo\n  three\n\n- four\n  five\n", Format::Text, &wrapped),
        ["One two three", "four five"]
    );
    // Lines stay about as long as they were.
    let document = read(b"one two\r\nthree four\r\n", Format::Text, &wrapped);
    let new = Translated { text: "um dois três quatro cinco".to_owned(), ..Translated::default() };
    assert_eq!(document.write(&[new]).bytes, "um dois\r\ntrês quatro cinco\r\n".as_bytes());
}

#[test]
fn html() {
    let cases: [(&str, &[&str]); 22] = [
        ("<p>The <b>red</b> house</p>", &["The ⟨red⟩ house"]),
        ("<p><b>All of it.</b></p>", &["All of it."]),
        ("<p>  One\n two  <b> three</b> </p>", &["One two ⟨three⟩"]),
        ("<p>One<p>Two<br>three", &["One", "Two", "three"]),
        ("<p>Run <code>make  it</code> now</p>", &["Run {make it} now"]),
        ("<p>Press <kbd>Ctrl</kbd>+<kbd>C</kbd> to copy</p>", &["Press {Ctrl+C} to copy"]),
        ("<p>See <img src=x> and <img src=y>.</p>", &["See {\u{fffc}} and {\u{fffc}}."]),
        ("<p><img src=x> A cat <img src=y></p>", &["A cat"]),
        ("<p>long<wbr>word and x<img>y</p>", &["long·word and x·y"]),
        ("<p>price<sup><a href=#1>[1]</a></sup> and 1<sup>st</sup></p>", &["price· and 1⟨st⟩"]),
        ("<p>A <i class=icon></i> star, <b><i>x</i></b></p>", &["A ·star, ⟨⟨x⟩⟩"]),
        ("<p>Say <span class=notranslate>Good <b>day</b></span> now</p>", &["Say {Good day} now"]),
        ("<div translate=no><p>x</p></div><p>y</p>", &["y"]),
        ("<p>Caf&eacute; &lt;b&gt; AT&T &amp; 3&nbsp;km</p>", &["Café <b> AT&T & 3\u{a0}km"]),
        ("<script>a</script><style>b</style><p>x <!-- c --> y</p>", &["x ·y"]),
        ("<pre>  one\n  two   three </pre>", &["one", "two", "three"]),
        ("<p>un<b>clos</i>ed", &["un·clos·ed"]),
        (
            "<p>Crossing <b>bold <i>both</b> italic</i> tags</p>",
            &["Crossing ⟨bold ·both⟩ italic· tags"],
        ),
        ("<p>An <a href=\"x.html>unclosed quote</a> here.</p>", &["An ⟨unclosed quote⟩ here."]),
        ("<td>42</td><td>&nbsp;</td><td>x</td>", &["x"]),
        ("2 < 3 and a <b>bold</b> claim", &["2 < 3 and a ⟨bold⟩ claim"]),
        ("<ruby>漢<rt>kan</rt></ruby>字 x", &["⟨漢⟩·字 x"]),
    ];
    for (page, expected) in cases {
        assert_eq!(blocks(page, Format::Html, &Options::default()), expected, "{page}");
    }
    let page = "<p title='A &amp; B'>x <img alt=cat src=y> y</p><meta name=description content=\"A page\"><input value=No>";
    let expected = ["A & B", "cat", "x {\u{fffc}} y", "A page"];
    assert_eq!(blocks(page, Format::Html, &with(|options| options.attributes = true)), expected);
}

#[test]
fn html_is_escaped_once() {
    let document =
        read(b"<p>A &lt; B &nbsp;&copy; <b>C</b> & D</p>", Format::Html, &Options::default());
    let new =
        Translated { text: "X < Y > Z \u{a0}© & \" <i> ©".to_owned(), ..Translated::default() };
    let text = String::from_utf8_lossy(&document.write(&[new]).bytes).into_owned();
    let text = text.replace("<b>", "").replace("</b>", "");
    assert_eq!(text, "<p>X &lt; Y &gt; Z &nbsp;&copy; & \" &lt;i&gt; &copy;</p>");
    // Quotes only matter in attributes.
    let options = with(|options| options.attributes = true);
    let document = read(b"<a title='x'>y</a><a title=\"x\">", Format::Html, &options);
    let written =
        write(&document, |_| Translated { text: "'\"".to_owned(), ..Translated::default() });
    assert_eq!(
        String::from_utf8_lossy(&written.bytes),
        "<a title='&#39;\"'>'\"</a><a title=\"'&quot;\">"
    );
}

#[test]
fn xml() {
    let cases: [(&str, &[&str]); 7] = [
        (
            "<?xml version='1.0'?><note><to>Anna</to><body>Do not forget</body></note>",
            &["Anna", "Do not forget"],
        ),
        (
            "<g id='1'>Click <x id='2'/> the <g id='3'>blue</g> button.</g>",
            &["Click {\u{fffc}} the ⟨blue⟩ button."],
        ),
        ("<a><p>See <b><i>this</i></b> now</p><p><!-- c -->x</p></a>", &["See ⟨⟨this⟩⟩ now", "x"]),
        ("<a>x <list><i>one</i><i>two</i></list></a>", &["x", "one", "two"]),
        ("<a>Use &product; &lt;now&gt; &#233;</a>", &["Use {&product;} <now> é"]),
        ("<r><a><![CDATA[Some < text]]></a><b><![CDATA[<p>x</p>]]></b></r>", &["Some < text"]),
        ("<html><body><p>a <b>c</b><br/>d <a id='x'/>e</p></body></html>", &["a ⟨c⟩", "d ·e"]),
    ];
    for (page, expected) in cases {
        assert_eq!(blocks(page, Format::Xml, &Options::default()), expected, "{page}");
    }
    let document = read(b"<r><a><![CDATA[x]]></a><b>y</b></r>", Format::Xml, &Options::default());
    let written = write(&document, |_| Translated {
        text: "a < b & ]]> c".to_owned(),
        ..Translated::default()
    });
    let expected =
        "<r><a><![CDATA[a < b & ]]]]><![CDATA[> c]]></a><b>a &lt; b &amp; ]]&gt; c</b></r>";
    assert_eq!(String::from_utf8_lossy(&written.bytes), expected);
}

#[test]
fn xml_that_is_not_well_formed_is_refused_with_its_place() {
    for (text, place) in [("<a>\n <b>x</a>", (2, 6)), ("<a>\n<b>", (2, 1)), ("<a", (1, 1))] {
        match Document::read(text.into(), Format::Xml, &Options::default()) {
            Err(Error::At { line, column, .. }) => assert_eq!((line, column), place, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
        // As a page of HTML it is mended.
        assert!(Document::read(text.into(), Format::Xhtml, &Options::default()).is_ok());
    }
    let latin = "<?xml version='1.0' encoding='ISO-8859-1'?><a>x</a>";
    let error = Document::read(latin.into(), Format::Xml, &Options::default())
        .map(|_| ())
        .expect_err("an encoding");
    assert_eq!(
        error.to_string(),
        "line 1, column 1: the encoding is ISO-8859-1; UTF-8 was expected"
    );
}

#[test]
fn markdown() {
    let text = "---\ntitle: x\n---\n# A *title* {#id}\n\nOne **two** `three`\n[four](five \"six\") and [seven][].\n\n> quoted\n> text\n\n\
        - [ ] item\n- <https://x.y>\n\n| a | b \\| c |\n|---|---|\n| *d* | 1 |\n\n```\ncode\n```\n\n    code\n\n<div>html</div>\n\n\
        Note[^1] and <b>bold</b> ![alt](src) x \\* y\n\n[^1]: The note.\n\n[seven]: x\n";
    let expected = [
        "A ⟨title⟩",
        "One ⟨two⟩ {three} ⟨four⟩ and {seven}.",
        "quoted text",
        "item",
        "a",
        "b | c",
        "d",
        "Note· and ⟨bold⟩ {\u{fffc}} x * y",
        "The note.",
    ];
    assert_eq!(blocks(text, Format::Markdown, &Options::default()), expected);
    let document = read(text.as_bytes(), Format::Markdown, &Options::default());
    let written = write(&document, crate::engines::appended);
    let text = String::from_utf8_lossy(&written.bytes).into_owned();
    for part in [
        "# A *title* zqx {#id}",
        "[four](five \"six\") and [seven][]. zqx",
        "> quoted\n> text zqx",
        "| a zqx | b \\| c zqx |",
        "x \\* y zqx",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

#[test]
fn text_does_not_become_marks_of_markdown() {
    let document = read(b"One two\nthree.\n", Format::Markdown, &Options::default());
    for (text, expected) in [
        ("- a * b_c [d]", "\\- a\n\\* b\\_c \\[d\\]\n"),
        ("# a", "\\#\na\n"),
        ("a b - c", "a b\n\\- c\n"),
        ("um dois # três", "um dois # três\n"),
        ("a <b> &amp;", "a \\<b>\n&amp;amp;\n"),
    ] {
        let new = Translated { text: text.to_owned(), ..Translated::default() };
        let written = String::from_utf8_lossy(&document.write(&[new]).bytes).into_owned();
        let again = read(written.as_bytes(), Format::Markdown, &Options::default());
        let shown: Vec<&str> = again.blocks().iter().map(|block| block.text.as_str()).collect();
        assert_eq!(shown, [text], "{written:?}, {expected:?}");
    }
}

#[test]
fn what_is_refused_says_why() {
    let message = |format| {
        Document::read(Vec::new(), format, &Options::default())
            .map(|_| ())
            .expect_err("an error")
            .to_string()
    };
    assert!(message(Format::Pdf).contains("PDF"));
    assert!(message(Format::OldOffice).contains("docx"));
    let options = with(|options| options.largest = 2);
    let error =
        Document::read(b"abc".to_vec(), Format::Text, &options).map(|_| ()).expect_err("a limit");
    assert_eq!(error.to_string(), "3 bytes, more than the limit of 2");
    let error = Document::read(b"\xff\xfea\0".to_vec(), Format::Html, &Options::default())
        .map(|_| ())
        .expect_err("UTF-16");
    assert!(error.to_string().contains("UTF-16"));
}

#[test]
fn bytes_that_are_no_text_are_copied() {
    for format in [Format::Markdown] {
        let bytes = b"caf\xe9 one \0 two\xff";
        let document = read(bytes, format, &Options::default());
        assert_eq!(document.blocks()[0].text.replace("  ", " "), "caf one two", "{format}");
        let new = Translated { text: "um dois três".to_owned(), ..Translated::default() };
        let written = document.write(&[new]).bytes;
        for byte in [0xe9, 0, 0xff] {
            let count = written.iter().filter(|&&other| other == byte).count();
            assert_eq!(count, 1, "{format}");
        }
    }
}

#[test]
fn pages_in_latin_1_get_references_for_new_characters() {
    let page = b"<meta charset=iso-8859-1><p>Un caf\xe9 \x80 <b>noir</b></p>";
    let document = read(page, Format::Html, &Options::default());
    assert_eq!(document.blocks()[0].text, "Un café € noir");
    let new = Translated { text: "É café ção".to_owned(), ..Translated::default() };
    let written = document.write(&[new]).bytes;
    assert_eq!(written, b"<meta charset=iso-8859-1><p>&#201; caf\xe9 <b>&#231;&#227;o</b></p>");
    let other = b"<meta charset=shift_jis><p>\x83\x41</p>".to_vec();
    let error = Document::read(other, Format::Html, &Options::default())
        .map(|_| ())
        .expect_err("an encoding");
    assert_eq!(error.to_string(), "the page's encoding is \"shift_jis\"; UTF-8 was expected");
}

#[test]
fn elements_are_what_the_caller_says() {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let options = with(|options| {
        options.elements.keep = list(&["x", "name"]);
        options.elements.block = list(&["par"]);
        options.elements.inline = list(&["div"]);
    });
    let snippet = "Ask <name>John Smith</name> for <x id=\"1\"></x> <b>keys</b>.<par>Now</par>";
    let expected = ["Ask {John Smith} for {\u{fffc}} ⟨keys⟩.", "Now"];
    assert_eq!(blocks(snippet, Format::Xml, &options), expected);
    assert_eq!(blocks(snippet, Format::Html, &options), expected);
    assert_eq!(blocks("One <div>two</div> three", Format::Html, &options), ["One ⟨two⟩ three"]);
    // A snippet of XML is one text, a document is not.
    let plain = Options::default();
    assert_eq!(blocks("One <b>two</b>", Format::Xml, &plain), ["One ⟨two⟩"]);
    assert_eq!(blocks("<a>One</a> <b>two</b>", Format::Xml, &plain), ["One", "two"]);
}
