"""Calls of the Python clients. Run by `run`, which sets CLIENTS; prints a JSON object for each call."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

import deep_translator
import deep_translator.deepl
import deep_translator.exceptions
import deepl
import google.api_core.exceptions
import google.auth.api_key
import google.auth.credentials
import google.oauth2.credentials
import libretranslatepy
import translate
import translate.exceptions
import translate.providers
from google.cloud import translate_v2

SETTINGS = json.loads(os.environ["CLIENTS"])
OPEN, KEYED, LIMITED = (SETTINGS[name] for name in ["open", "keyed", "limited"])
KEY, WRONG = SETTINGS["key"], "wrong-key"
DOGS, CAES = "Two dogs play in the snow.", "Dois cães brincam na neve."
TAGGED, TAGGED_IN_PT = "<p>Two <b>dogs</b> play in the snow.</p>", "<p>Dois <b>cães</b> brincam na neve.</p>"
MORNING, DIA = "Good morning!", "Bom dia!"
# Line breaks, characters that forms and addresses escape, and such beyond ASCII and beyond 16 bits.
SPECIAL = f"{DOGS}\n\n50% + 1 & more = “Zürich”? 🐶\n{DOGS}"
# A refusal comes at once. Clients that send a request again wait a second or more between tries.
MOST_SECONDS = 5


def mark(client, call):
    """Tells the recording proxy which call comes next."""
    if SETTINGS["record"]:
        body = json.dumps({"client": client, "call": call}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{OPEN}/-/mark", body), timeout=10).read()


def requests_seen():
    """How many requests the servers have answered, but for those about themselves."""
    count = 0
    for address in SETTINGS["direct"].values():
        page = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
        for labels, number in re.findall(r"^peregrine_http_requests_total\{(.*)\} (\d+)", page, re.MULTILINE):
            count += 0 if 'api="operations"' in labels else int(number)
    return count


def native(text):
    """What the server's own API answers."""
    body = json.dumps({"text": text, "from": "en", "to": "pt"}).encode()
    with urllib.request.urlopen(f"{SETTINGS['direct']['open']}/v1/translate", body, timeout=60) as answer:
        return json.load(answer)["translations"][0]["text"]


class Client:
    """A client under test."""

    def __init__(self, name, shown=None):
        self.name = shown or name
        self.version = importlib.metadata.version(name)
        self.wanted = not SETTINGS["only"] or self.name in SETTINGS["only"]

    def call(self, name, function, requests=None):
        """Runs a call. `requests` is how many requests it must send, where that matters."""
        if not self.wanted:
            return
        mark(self.name, name)
        before, start, why = requests_seen(), time.monotonic(), ""
        try:
            function()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            why = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
        seconds, sent = time.monotonic() - start, requests_seen() - before
        if not why and requests is not None and sent != requests:
            why = f"sent {sent} requests, not {requests}"
        row = {"client": self.name, "version": self.version, "call": name, "ok": not why, "seconds": round(seconds, 2), "why": why}
        print(json.dumps(row), flush=True)

    def refused(self, name, exception, pattern, function, requests=1):
        """Runs a call that must fail with the client's own exception, soon, and with no second try."""

        def fails():
            start = time.monotonic()
            try:
                got = function()
            except exception as error:
                told = " ".join(filter(None, [str(error), getattr(getattr(error, "__cause__", None), "reason", "")]))
                assert re.search(pattern, told, re.IGNORECASE), f"{type(error).__name__} says {told!r}, not {pattern!r}"
                took = time.monotonic() - start
                assert took < MOST_SECONDS, f"took {took:.1f} s"
            else:
                raise AssertionError(f"no {exception.__name__} but {got!r}")

        self.call(name, fails, requests)


WANTED = native(SPECIAL)


def same(got, wanted):
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


def check(truth, got):
    assert truth, f"got {got!r}"


def deepl_client():
    it = Client("deepl")
    c = deepl.DeepLClient("any", server_url=OPEN)

    def one():
        result = c.translate_text(DOGS, source_lang="EN", target_lang="PT-BR")
        same((result.text, result.detected_source_lang, result.billed_characters), (CAES, "EN", len(DOGS)))

    def many():
        results = c.translate_text([DOGS, MORNING, ""], source_lang="EN", target_lang="PT-PT")
        same([result.text for result in results], [CAES, DIA, ""])

    def languages():
        sources, targets = c.get_source_languages(), c.get_target_languages()
        check("EN" in [language.code.upper() for language in sources], sources)
        check(all(language.name and language.supports_formality is False for language in targets), targets)
        # A program offers these languages and hands the chosen one back.
        for language in targets:
            same(c.translate_text(DOGS, target_lang=language.code).text, CAES)
        check(len(targets) > 0, targets)

    def usage():
        usage = c.get_usage()
        check(usage.character.valid and usage.character.limit > 0 and not usage.any_limit_reached, usage)

    def options():
        text = c.translate_text(DOGS, target_lang="PT-BR", split_sentences="0", preserve_formatting=True, formality="prefer_more",
                                context="Winter.", model_type="prefer_quality_optimized").text
        same(text, CAES)

    it.call("translate one", one, 1)
    it.call("translate many", many, 1)
    it.call("special characters", lambda: same(c.translate_text(SPECIAL, source_lang="EN", target_lang="PT-BR").text, WANTED), 1)
    it.call("50 texts", lambda: same({text.text for text in c.translate_text([MORNING] * 50, target_lang="PT-BR")}, {DIA}), 1)
    it.call("detect", lambda: same(c.translate_text(DOGS, target_lang="PT-BR").detected_source_lang, "EN"), 1)
    it.call("options that may be passed over", options, 1)
    it.call("languages, each of them usable", languages)
    it.call("usage", usage, 1)

    def document():
        source, target = Path("in.txt"), Path("out.txt")
        source.write_text(f"{DOGS}\n\n{MORNING}\n")
        target.unlink(missing_ok=True)
        status = c.translate_document_from_filepath(source, target, source_lang="EN", target_lang="PT-BR")
        same((target.read_text(), status.done, status.billed_characters), (f"{CAES}\n\n{DIA}\n", True, len(DOGS + MORNING)))

    def document_step_by_step():
        handle = c.translate_document_upload(DOGS, filename="a.txt", target_lang="PT-PT")
        status = c.translate_document_get_status(handle)
        check(status.ok and status.done, status.status)
        same(b"".join(c.translate_document_download(handle).iter_content(100)).decode(), CAES)

    def page():
        handle = c.translate_document_upload(TAGGED, filename="a.html", source_lang="EN", target_lang="PT-PT")
        same(b"".join(c.translate_document_download(handle).iter_content(100)).decode(), TAGGED_IN_PT)

    def upload(client=c, filename="a.txt", **options):
        return client.translate_document_upload("Hi", filename=filename, source_lang="EN", target_lang="PT-PT", **options)

    it.call("document", document, 3)
    it.call("document, step by step", document_step_by_step, 3)
    it.call("document, a page", page, 2)
    for kind in ["html", "xml"]:
        it.call(f"tag_handling={kind}", lambda kind=kind: same(c.translate_text(TAGGED, source_lang="EN", target_lang="PT-BR", tag_handling=kind).text, TAGGED_IN_PT), 1)
    it.call("ignore_tags", lambda: check("<x>dogs</x>" in c.translate_text("Two <x>dogs</x> play in the snow.", source_lang="EN", target_lang="PT-BR", tag_handling="xml", ignore_tags=["x"]).text, "lost"), 1)
    it.refused("XML that is none", deepl.DeepLException, "not well-formed", lambda: c.translate_text("a <b>", source_lang="EN", target_lang="PT-BR", tag_handling="xml"))
    it.refused("document that is broken", deepl.DeepLException, "zip", lambda: upload(filename="a.docx"))
    it.refused("document of another kind", deepl.DeepLException, "not supported", lambda: upload(filename="a.exe"))
    it.refused("document to another kind", deepl.DeepLException, "not supported", lambda: upload(output_format="docx"))
    it.refused("document with a glossary that is not there", deepl.DeepLException, "glossary", lambda: upload(glossary="a-b"))
    it.refused("document in an unknown language", deepl.DeepLException, "xx", lambda: c.translate_document_upload("Hi", filename="a.txt", target_lang="XX"))
    lost = deepl.DocumentHandle("0" * 32, "k")
    it.refused("document that is not there", deepl.DeepLException, "no such document", lambda: c.translate_document_get_status(lost))

    error = deepl.DeepLException
    it.refused("unknown target language", error, "xx", lambda: c.translate_text("Hi", target_lang="XX"))
    it.refused("unknown source language", error, "xx", lambda: c.translate_text("Hi", source_lang="XX", target_lang="PT-BR"))
    it.refused("pair that is not there", error, "de", lambda: c.translate_text("Hi", source_lang="EN", target_lang="DE"))
    for options in [{"tag_handling": "sgml"}, {"formality": "more"},
                    {"glossary": "a-b"}, {"style_rule": "a-b"},
                    {"translation_memory": "a-b", "translation_memory_threshold": 80}, {"custom_instructions": ["Be kind."]}]:
        name = next(iter(options))
        parameters = {"style_rule": "style_id", "translation_memory": "translation_memory_id"}
        parameter = parameters.get(name, name)
        it.refused(f"{name}={options[name]}", error, parameter,
                   lambda options=options: c.translate_text("Hi", source_lang="EN", target_lang="PT-BR", **options))
    entries = {"dogs": "cachorros"}
    def glossary():
        made = c.create_glossary("t", "EN", "PT", entries)
        same((made.name, made.source_lang, made.target_lang, made.entry_count, made.ready), ("t", "EN", "PT", 1, True))
        same([one.glossary_id for one in c.list_glossaries()], [made.glossary_id])
        same(c.get_glossary(made.glossary_id).creation_time, made.creation_time)
        same(c.get_glossary_entries(made), {"dogs": "cachorros"})
        for options in [{"glossary": made}, {"glossary_ids": [made.glossary_id]}]:
            text = c.translate_text(DOGS, source_lang="EN", target_lang="PT-BR", **options).text
            check("cachorros" in text, text)
        c.delete_glossary(made)
        same(c.list_glossaries(), [])

    def glossary_csv():
        made = c.create_glossary_from_csv("t", "EN", "PT", '"dogs","cachorros",en,pt\r\n"snow, wet","neve molhada",en,pt\r\n')
        same(c.get_glossary_entries(made), {"dogs": "cachorros", "snow, wet": "neve molhada"})
        c.delete_glossary(made)

    def multilingual():
        made = c.create_multilingual_glossary("t", [dictionary])
        same([(d.source_lang.upper(), d.target_lang.upper(), d.entry_count) for d in made.dictionaries], [("EN", "PT", 1)])
        more = deepl.api_data.MultilingualGlossaryDictionaryEntries("EN", "PT", {"snow": "geada"})
        same(c.update_multilingual_glossary_name(made, "u").name, "u")
        c.update_multilingual_glossary_dictionary(made, more)
        same(c.get_multilingual_glossary_entries(made, "EN", "PT").dictionaries[0].entries, "dogs\tcachorros\nsnow\tgeada\n")
        same(c.replace_multilingual_glossary_dictionary(made, more).entry_count, 1)
        other = deepl.api_data.MultilingualGlossaryDictionaryEntries("PT", "EN", {"neve": "snow"})
        c.replace_multilingual_glossary_dictionary(made, other)
        same(len(c.get_multilingual_glossary(made.glossary_id).dictionaries), 2)
        text = c.translate_text(DOGS, source_lang="EN", target_lang="PT-BR", glossary=made).text
        check("geada" in text, text)
        c.delete_multilingual_glossary_dictionary(made, other)
        same(len(c.list_multilingual_glossaries()), 1)
        c.delete_multilingual_glossary(made)

    it.call("list glossaries", lambda: same(c.list_glossaries(), []), 1)
    it.call("a glossary made, used and deleted", glossary, 8)
    it.call("a glossary in CSV", glossary_csv, 3)
    it.call("glossary languages", lambda: same([(one.source_lang, one.target_lang) for one in c.get_glossary_languages()], [("en", "pt")]), 1)
    it.refused("a glossary without entries", error, "entries", lambda: c.create_glossary_from_csv("t", "EN", "PT", " "))
    missing = deepl.GlossaryNotFoundException
    it.refused("glossary that is not there", missing, "glossary", lambda: c.get_glossary("x"))
    it.refused("entries of no glossary", missing, "glossary", lambda: c.get_glossary_entries("x"))
    it.refused("delete no glossary", missing, "glossary", lambda: c.delete_glossary("x"))
    dictionary = deepl.api_data.MultilingualGlossaryDictionaryEntries("EN", "PT", entries)
    it.call("list glossaries (v3)", lambda: same(c.list_multilingual_glossaries(), []), 1)
    it.call("a glossary made, changed, used and deleted (v3)", multilingual, 11)
    it.refused("glossary that is not there (v3)", missing, "glossary", lambda: c.get_multilingual_glossary("x"))
    it.refused("entries of no glossary (v3)", missing, "glossary", lambda: c.get_multilingual_glossary_entries("x", "EN", "PT"))
    it.refused("rename no glossary (v3)", missing, "glossary", lambda: c.update_multilingual_glossary_name("x", "y"))
    it.refused("change no glossary (v3)", missing, "glossary", lambda: c.replace_multilingual_glossary_dictionary("x", dictionary))
    it.refused("delete no glossary (v3)", missing, "glossary", lambda: c.delete_multilingual_glossary("x"))
    it.refused("delete no dictionary (v3)", missing, "glossary", lambda: c.delete_multilingual_glossary_dictionary("x", dictionary))
    it.refused("rephrase", error, r"\w+ \w+", lambda: c.rephrase_text("Hi"))
    it.refused("style rules", error, r"\w+ \w+", lambda: c.get_all_style_rules())

    right, wrong = (deepl.DeepLClient(key, server_url=KEYED) for key in [KEY, WRONG])
    it.call("right key", lambda: same(right.translate_text(DOGS, target_lang="PT-BR").text, CAES), 1)
    it.call("right key: usage, languages", lambda: check(right.get_usage() and right.get_source_languages(), None))
    denied = deepl.AuthorizationException
    it.refused("wrong key", denied, "auth", lambda: wrong.translate_text(DOGS, target_lang="PT-BR"))
    it.refused("wrong key: usage", denied, "auth", wrong.get_usage)
    it.refused("wrong key: languages", denied, "auth", wrong.get_target_languages)
    it.refused("wrong key: document", denied, "auth", lambda: upload(wrong))

    def too_many():
        deepl.http_client.max_network_retries = 0
        try:
            deepl.DeepLClient("any", server_url=LIMITED).translate_text("Hi", target_lang="PT-BR")
        finally:
            deepl.http_client.max_network_retries = 5

    it.refused("too many requests", deepl.TooManyRequestsException, "too many|slowdown", too_many)


def deepl_command():
    it = Client("deepl", "python -m deepl")

    def run(*arguments, server=OPEN, key="any"):
        environment = os.environ | {"DEEPL_AUTH_KEY": key, "DEEPL_SERVER_URL": server}
        command = [sys.executable, "-m", "deepl", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr).strip().split("\n")[-1])
        return done.stdout

    it.call("text", lambda: same(run("text", "--to", "PT-BR", DOGS), CAES + "\n"), 1)
    it.call("usage", lambda: check("haracters" in run("usage"), run("usage")))
    it.call("languages", lambda: check("Portuguese" in run("languages"), run("languages")))
    it.refused("unknown language", RuntimeError, "xx", lambda: run("text", "--to", "XX", DOGS))
    it.call("right key", lambda: same(run("text", "--to", "PT-BR", DOGS, server=KEYED, key=KEY), CAES + "\n"), 1)
    it.refused("wrong key", RuntimeError, "auth", lambda: run("text", "--to", "PT-BR", DOGS, server=KEYED, key=WRONG))


def libretranslatepy_client():
    it = Client("libretranslatepy")
    c = libretranslatepy.LibreTranslateAPI(OPEN)

    def detect():
        found = c.detect(DOGS)
        check(found[0]["language"] == "en" and 1 < found[0]["confidence"] <= 100, found)
        same(c.detect("Das ist ein schöner deutscher Satz mit Umlauten.")[0]["language"], "de")

    def languages():
        found = {language["code"]: language for language in c.languages()}
        same((found["en"]["name"], found["en"]["targets"]), ("English", ["en", "pt"]))
        check("pt" in found, found)
        # Each target that a language names can be asked for.
        for source, language in found.items():
            for target in language["targets"]:
                check(c.translate(DOGS, source, target), (source, target))

    it.call("translate one", lambda: same(c.translate(DOGS, "en", "pt"), CAES), 1)
    it.call("translate many", lambda: same([c.translate(text, "en", "pt") for text in [DOGS, MORNING]], [CAES, DIA]), 2)
    it.call("translate from auto", lambda: same(c.translate(DOGS, "auto", "pt"), CAES), 1)
    it.call("special characters", lambda: same(c.translate(SPECIAL, "en", "pt"), WANTED), 1)
    it.call("detect", detect, 2)
    it.call("languages, each of them usable", languages)
    error = urllib.error.HTTPError
    it.refused("unknown language", error, "400", lambda: c.translate("Hi", "en", "xx"))
    it.refused("pair that is not there", error, "400", lambda: c.translate("Hi", "pt", "en"))
    it.refused("empty text", error, "400", lambda: c.translate("", "en", "pt"))
    right, wrong, none = (libretranslatepy.LibreTranslateAPI(KEYED + "/", api_key=key) for key in [KEY, WRONG, None])
    it.call("right key", lambda: same(right.translate(DOGS, "en", "pt"), CAES), 1)
    it.call("right key: detect, languages", lambda: check(right.detect(DOGS) and right.languages(), None))
    it.refused("wrong key", error, "403", lambda: wrong.translate("Hi", "en", "pt"))
    it.refused("wrong key: detect", error, "403", lambda: wrong.detect("Hi"))
    it.refused("no key", error, "400", lambda: none.translate("Hi", "en", "pt"))
    it.call("no key: languages", lambda: check(none.languages(), None), 1)
    limited = libretranslatepy.LibreTranslateAPI(LIMITED)
    it.refused("too many requests", error, "429", lambda: limited.translate("Hi", "en", "pt"))


def deep_translator_client():
    errors = deep_translator.exceptions
    for name in ["deep-translator, Libre", "deep-translator, DeepL"]:
        it = Client("deep-translator", name)

        def client(source="en", target="pt", server=OPEN, key="any", libre=name.endswith("Libre")):
            if libre:
                return deep_translator.LibreTranslator(source=source, target=target, api_key=key, custom_url=server + "/")
            deep_translator.deepl.BASE_URLS["DEEPL_FREE"] = server + "/{version}/"
            return deep_translator.DeeplTranslator(source=source, target=target, api_key=key)

        def file():
            Path("in.txt").write_text(DOGS)
            same(client().translate_file("in.txt"), CAES)

        it.call("translate one", lambda: same(client().translate(DOGS), CAES), 1)
        it.call("translate many", lambda: same(client().translate_batch([DOGS, MORNING]), [CAES, DIA]), 2)
        it.call("special characters", lambda: same(client().translate(SPECIAL), WANTED), 1)
        it.call("detect", lambda: same(client(source="auto").translate(DOGS), CAES), 1)
        it.call("file", file, 1)
        it.refused("unknown language", errors.ServerException, "BAD_REQUEST", lambda: client(target="de" if name.endswith("Libre") else "german").translate("Hi"))
        it.call("right key", lambda: same(client(server=KEYED, key=KEY).translate(DOGS), CAES), 1)
        it.refused("wrong key", errors.AuthorizationException, "unauthorized|wrong-key", lambda: client(server=KEYED, key=WRONG).translate("Hi"))
        it.refused("too many requests", errors.ServerException, "TOO_MANY", lambda: client(server=LIMITED).translate("Hi"))


def translate_client():
    it = Client("translate", "translate (Python), libre")

    def libre(server=OPEN, key=None, source="en", target="pt"):
        return translate.Translator(provider="libre", from_lang=source, to_lang=target, base_url=server, secret_access_key=key)

    error = translate.exceptions.TranslationError
    it.call("translate one", lambda: same(libre().translate(DOGS), CAES), 1)
    # Texts of more than 1000 characters are sent in pieces.
    it.call("translate a long text", lambda: check(libre().translate(f"{DOGS} " * 40).count("cães") == 40, None), 2)
    it.call("detect", lambda: same(libre(source="autodetect").translate(DOGS), CAES), 2)
    it.refused("unknown language", error, "400", lambda: libre(target="xx").translate("Hi"))
    it.call("right key", lambda: same(libre(KEYED, KEY).translate(DOGS), CAES), 1)
    it.refused("wrong key", error, "403", lambda: libre(KEYED, WRONG).translate("Hi"))
    it.refused("too many requests", error, "429", lambda: libre(LIMITED).translate("Hi"))

    it = Client("translate", "translate (Python), deepl")

    def of_deepl(server=OPEN, key="any", source="en", target="pt"):
        translate.providers.DeeplProvider.base_free_url = f"{server}/v2/translate"
        return translate.Translator(provider="deepl", from_lang=source, to_lang=target, secret_access_key=key)

    # This provider lets the exception of its transport through.
    error = OSError
    it.call("translate one", lambda: same(of_deepl().translate(DOGS), CAES), 1)
    it.call("special characters", lambda: same(of_deepl().translate(SPECIAL), WANTED), 1)
    it.call("detect", lambda: same(of_deepl(source="autodetect").translate(DOGS), CAES), 1)
    it.refused("unknown language", error, "400", lambda: of_deepl(target="xx").translate("Hi"))
    it.call("right key", lambda: same(of_deepl(KEYED, KEY).translate(DOGS), CAES), 1)
    it.refused("wrong key", error, "403", lambda: of_deepl(KEYED, WRONG).translate("Hi"))
    it.refused("too many requests", error, "429", lambda: of_deepl(LIMITED).translate("Hi"))


def google_client():
    it = Client("google-cloud-translate")

    def client(server=OPEN, credentials=None):
        credentials = credentials or google.auth.credentials.AnonymousCredentials()
        return translate_v2.Client(credentials=credentials, client_options={"api_endpoint": server})

    c, errors = client(), google.api_core.exceptions

    def one():
        result = c.translate(DOGS, source_language="en", target_language="pt", format_="text")
        same((result["translatedText"], result["input"], "detectedSourceLanguage" in result), (CAES, DOGS, False))

    def many():
        results = c.translate([DOGS, MORNING, ""], source_language="en", target_language="pt", format_="text")
        same([result["translatedText"] for result in results], [CAES, DIA, ""])

    def detects():
        result = c.translate(DOGS, target_language="pt")
        same((result["translatedText"], result["detectedSourceLanguage"]), (CAES, "en"))

    def detect():
        found = c.detect_language([DOGS, "Das ist ein deutscher Satz mit einigen Wörtern."])
        same([entry["language"] for entry in found], ["en", "de"])
        check(all(0 < entry["confidence"] <= 1 for entry in found), found)
        same(c.detect_language(DOGS)["input"], DOGS)

    def languages():
        found = {entry["language"]: entry["name"] for entry in c.get_languages()}
        same((found["en"], found["pt"]), ("English", "Portuguese"))
        check({"language": "pt"} in [{"language": entry["language"]} for entry in c.get_languages(target_language=None)], found)

    it.call("translate one", one, 1)
    it.call("translate many", many, 1)
    it.call("special characters", lambda: same(c.translate(SPECIAL, "pt", "text", "en")["translatedText"], WANTED), 1)
    it.call("translate, detects", detects, 1)
    it.call("translate as HTML without markup", lambda: same(c.translate(DOGS, target_language="pt", format_="html")["translatedText"], CAES), 1)
    it.call("detect", detect, 2)
    it.call("languages", languages, 2)
    it.refused("unknown language", errors.BadRequest, "xx", lambda: c.translate("Hi", target_language="xx"))
    it.refused("unknown source", errors.BadRequest, "xx", lambda: c.translate("Hi", target_language="pt", source_language="xx"))
    it.refused("unknown language of names", errors.BadRequest, r"\w+ \w+", lambda: c.get_languages(target_language="xx"))
    it.call("markup", lambda: same(c.translate(TAGGED, target_language="pt", format_="html")["translatedText"], TAGGED_IN_PT), 1)
    it.refused("129 texts", errors.BadRequest, "129", lambda: c.translate(["Hi"] * 129, target_language="pt"))
    token = google.oauth2.credentials.Credentials
    it.call("right token", lambda: same(client(KEYED, token(KEY)).translate(DOGS, target_language="pt")["translatedText"], CAES), 1)
    it.refused("wrong token", errors.Forbidden, "key", lambda: client(KEYED, token(WRONG)).translate("Hi", target_language="pt"))
    key = google.auth.api_key.Credentials
    it.call("right API key", lambda: same(client(KEYED, key(KEY)).translate(DOGS, target_language="pt")["translatedText"], CAES), 1)
    it.refused("wrong API key", errors.Forbidden, "key", lambda: client(KEYED, key(WRONG)).translate("Hi", target_language="pt"))
    it.refused("no key", errors.Forbidden, "key", lambda: client(KEYED).translate("Hi", target_language="pt"))
    it.refused("no key: languages", errors.Forbidden, "key", lambda: client(KEYED).get_languages())
    it.refused("too many requests", errors.TooManyRequests, r"\w+", lambda: client(LIMITED).translate("Hi", target_language="pt"))


for suite in [deepl_client, deepl_command, libretranslatepy_client, deep_translator_client, translate_client, google_client]:
    suite()
