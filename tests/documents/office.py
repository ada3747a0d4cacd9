#!/usr/bin/env python3
"""Makes a file of each office format with its library, has it translated, and compares structure and styles.

    pip install python-docx python-pptx openpyxl odfpy ebooklib
    python tests/documents/office.py --binary target/release/peregrine [--model DIR] [--folder OUT]
    python tests/documents/office.py --command 'target/debug/examples/upper --turn {input} {output}'

Where a library is missing its format is skipped, and said so. Where LibreOffice (`soffice`) is there the results are also
converted to PDF, and that must give a page.
"""

import argparse
import io
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path


def picture():
    """A PNG of one pixel."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b""))


# Each format has a function that makes a file and one that says what must not change in it. The second one gives
# a list of facts; texts are not among them, apart from those that must stay.


def make_docx(path):
    import docx
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    document = docx.Document()
    document.add_heading("A report about the red house", 1)
    paragraph = document.add_paragraph("The ")
    paragraph.add_run("red").bold = True
    paragraph.add_run(" house is ")
    paragraph.add_run("very").italic = True
    paragraph.add_run(" large & old.")
    document.add_paragraph("The first point", style="List Bullet")
    document.add_paragraph("The second point", style="List Bullet")
    document.add_paragraph("Name:\tDate:\tPlace")
    paragraph = document.add_paragraph("Read ")
    link = OxmlElement("w:hyperlink")
    link.set(qn("w:anchor"), "top")
    run = paragraph.add_run("this page")
    run.underline = True
    link.append(run._r)
    paragraph._p.append(link)
    paragraph.add_run(" for more.")
    paragraph = document.add_paragraph("Look at ")
    paragraph.add_run().add_picture(picture())
    paragraph.add_run(" before you go.")
    table = document.add_table(2, 2, style="Table Grid")
    for number, cell in enumerate(table._cells):
        cell.text = f"Cell number {number} is here"
    document.sections[0].header.paragraphs[0].text = "The head of the page"
    document.sections[0].footer.paragraphs[0].text = "The foot of the page"
    document.add_comment(paragraph.runs, text="Is this right?", author="A. Name")
    document.save(path)


def facts_docx(path):
    import docx

    document = docx.Document(path)

    def paragraph(p):
        formats = {(run.bold, run.italic, run.underline) for run in p.runs if run.text.strip()}
        links = [link.fragment for link in p.hyperlinks]
        drawings = p._p.xpath("count(.//w:drawing)")
        return (p.style.name, sorted(map(str, formats)), links, drawings, p.text.count("\t"), bool(p.text.strip()))

    yield from (paragraph(p) for p in document.paragraphs)
    for table in document.tables:
        yield (table.style.name, len(table.rows), len(table.columns))
        yield from (paragraph(p) for cell in table._cells for p in cell.paragraphs)
    for section in document.sections:
        yield from (paragraph(p) for p in section.header.paragraphs + section.footer.paragraphs)
    yield [(comment.author, bool(comment.text)) for comment in document.comments]


def make_pptx(path):
    import pptx
    from pptx.util import Inches

    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title of a slide"
    frame = slide.placeholders[1].text_frame
    frame.text = "The first point"
    paragraph = frame.add_paragraph()
    for text, bold in [("A ", None), ("bold", True), (" word in a sentence", None)]:
        run = paragraph.add_run()
        run.text, run.font.bold = text, bold
    table = slide.shapes.add_table(2, 2, Inches(1), Inches(4), Inches(4), Inches(1)).table
    for number, cell in enumerate(table.iter_cells()):
        cell.text = f"Cell number {number} is here"
    slide.shapes.add_picture(picture(), Inches(6), Inches(1))
    slide.notes_slide.notes_text_frame.text = "Say this to the people"
    presentation.save(path)


def facts_pptx(path):
    import pptx

    def paragraphs(frame):
        for p in frame.paragraphs:
            yield (p.level, sorted({str(run.font.bold) for run in p.runs}), bool(p.text.strip()))

    for slide in pptx.Presentation(path).slides:
        for shape in slide.shapes:
            yield (shape.shape_type, shape.name, shape.left, shape.top)
            if shape.has_text_frame:
                yield from paragraphs(shape.text_frame)
            if shape.has_table:
                for cell in shape.table.iter_cells():
                    yield from paragraphs(cell.text_frame)
        yield from paragraphs(slide.notes_slide.notes_text_frame)


def make_xlsx(path):
    import openpyxl
    from openpyxl.cell.rich_text import CellRichText, TextBlock
    from openpyxl.cell.text import InlineFont
    from openpyxl.styles import Font
    from openpyxl.worksheet.table import Table

    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Words"
    sheet["A1"], sheet["B1"] = "Name", "Value"
    sheet["A2"], sheet["B2"] = "The red house", 42
    sheet["A2"].font = Font(bold=True)
    sheet["A3"], sheet["B3"] = "two lines\nin a cell", '=A2&" stays"'
    sheet["A4"] = CellRichText("A ", TextBlock(InlineFont(b=True), "bold"), " word")
    sheet.add_table(Table(displayName="People", ref="A1:B4"))
    book.save(path)


def facts_xlsx(path):
    import openpyxl
    from openpyxl.cell.rich_text import CellRichText

    for sheet in openpyxl.load_workbook(path, rich_text=True):
        yield (sheet.title, sheet.dimensions, [(t.displayName, t.ref, t.column_names) for t in sheet.tables.values()])
        for row in sheet.iter_rows():
            for cell in row:
                value = cell.value
                stays = not isinstance(value, str) or cell.data_type == "f" or cell.row == 1
                if isinstance(value, CellRichText):
                    # Words of the default formatting may stand before, behind or on both sides.
                    value = [part.font.b for part in value if not isinstance(part, str) and part.font.b]
                yield (cell.coordinate, cell.data_type, cell.font.b, value if stays else str(value).count("\n"))


def make_odt(path):
    from odf.opendocument import OpenDocumentText
    from odf.style import Style, TextProperties
    from odf.text import A, H, List, ListItem, Note, NoteBody, NoteCitation, P, Span, Tab

    document = OpenDocumentText()
    bold = Style(name="Bold", family="text")
    bold.addElement(TextProperties(fontweight="bold"))
    document.automaticstyles.addElement(bold)
    document.text.addElement(H(outlinelevel=1, text="A report about the red house"))
    paragraph = P(text="The ")
    paragraph.addElement(Span(stylename=bold, text="red"))
    paragraph.addText(" house has a history")
    note = Note(noteclass="footnote", id="n1")
    note.addElement(NoteCitation(text="1"))
    body = NoteBody()
    body.addElement(P(text="As old people say."))
    note.addElement(body)
    paragraph.addElement(note)
    paragraph.addText(" and ")
    paragraph.addElement(A(href="http://example.org/", text="a page"))
    document.text.addElement(paragraph)
    paragraph = P(text="Name:")
    paragraph.addElement(Tab())
    paragraph.addText("Date:")
    document.text.addElement(paragraph)
    items = List()
    item = ListItem()
    item.addElement(P(text="The first point"))
    items.addElement(item)
    document.text.addElement(items)
    document.save(path)


def facts_odt(path):
    from odf.opendocument import load

    def walk(node):
        inline = ("text:span", "text:a", "text:note", "text:tab")
        if node.nodeType != 1:
            return
        attributes = sorted((str(key), str(value)) for key, value in (node.attributes or {}).items())
        children = [child.tagName for child in node.childNodes if child.nodeType == 1]
        # Pairs stay in their paragraph, in whatever order.
        yield (node.tagName, attributes, sorted(children) if node.tagName in ("text:p", "text:h") else children)
        nodes = node.childNodes
        if node.tagName in ("text:p", "text:h"):
            nodes = sorted((n for n in nodes if n.nodeType == 1 and n.tagName in inline), key=lambda n: n.tagName)
        for child in nodes:
            yield from walk(child)

    yield from walk(load(path).text)


def make_epub(path):
    from ebooklib import epub

    book = epub.EpubBook()
    book.set_identifier("id1")
    book.set_title("The old house")
    book.set_language("en")
    book.add_author("A. Name")
    chapter = epub.EpubHtml(title="The first chapter", file_name="one.xhtml", lang="en")
    chapter.content = "<h1>The first chapter</h1><p>It was a <i>dark</i> night, and the <b>house</b> was old.</p>"
    book.add_item(chapter)
    book.add_item(epub.EpubImage(uid="p", file_name="p.png", media_type="image/png", content=picture().read()))
    book.toc = [chapter]
    book.add_item(epub.EpubNcx())
    book.add_item(epub.EpubNav())
    book.spine = ["nav", chapter]
    epub.write_epub(path, book)


def facts_epub(path):
    import re

    from ebooklib import epub

    with zipfile.ZipFile(path) as archive:
        first = archive.infolist()[0]
        yield (first.filename, first.compress_type, archive.read(first))
    book = epub.read_epub(path)
    yield (book.get_metadata("DC", "creator"), book.get_metadata("DC", "language"), len(book.toc))
    for item in book.get_items():
        tags = sorted(re.findall(rb"<[^>]*>", item.get_content())) if item.file_name.endswith("html") else len(item.content)
        yield (item.file_name, item.media_type, tags if not item.file_name.endswith(("ncx",)) else None)


FORMATS = ["docx", "pptx", "xlsx", "odt", "epub"]


def entries(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None, f"{path}: a checksum is wrong"
        return [(entry.filename, entry.compress_type, entry.date_time, entry.external_attr) for entry in archive.infolist()]


def check(ending, translate, folder):
    """One line about a format; whether all is well."""
    before, after = folder / f"before.{ending}", folder / f"after.{ending}"
    try:
        globals()[f"make_{ending}"](str(before))
    except ImportError as error:
        return f"{ending}: skipped ({error})", True
    translate(before, after)
    if before.read_bytes() == after.read_bytes():
        return f"{ending}: FAILED, nothing was translated", False
    if entries(before) != entries(after):
        return f"{ending}: FAILED, other entries than before", False
    facts = globals()[f"facts_{ending}"]
    old, new = list(facts(str(before))), list(facts(str(after)))
    for one, other in zip(old, new):
        if one != other:
            return f"{ending}: FAILED\n  before {one}\n  after  {other}", False
    if len(old) != len(new):
        return f"{ending}: FAILED, {len(old)} facts before, {len(new)} after", False
    pdf = ""
    if shutil.which("soffice") and ending != "epub":
        subprocess.run(["soffice", "--headless", "--convert-to", "pdf", "--outdir", str(folder), str(after)], check=True, capture_output=True)
        pdf = f", PDF of {(folder / 'after.pdf').stat().st_size} bytes"
    return f"{ending}: {len(old)} facts are the same{pdf}", True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the program `peregrine`")
    parser.add_argument("--model", help="the model it translates with; the built-in one if none is given")
    parser.add_argument("--command", help="another command, with {input} and {output} in it")
    parser.add_argument("--folder", type=Path, help="where files are kept; a temporary folder otherwise")
    parser.add_argument("formats", nargs="*", default=FORMATS, help="of " + ", ".join(FORMATS))
    options = parser.parse_args()
    if not options.command and not options.binary:
        parser.error("--binary or --command is needed")

    def translate(before, after):
        if options.command:
            command = [part.format(input=before, output=after) for part in shlex.split(options.command)]
        else:
            command = [options.binary, "translate", *(["-m", options.model] if options.model else []), "-i", str(before), "-o", str(after)]
        subprocess.run(command, check=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = [check(ending, translate, folder) for ending in options.formats]
    for line, _ in results:
        print(line)
    sys.exit(0 if all(fine for _, fine in results) else 1)


if __name__ == "__main__":
    main()
