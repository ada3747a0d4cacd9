// Calls of the Node clients. Run by `run`, which sets CLIENTS; prints a JSON object for each call.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const settings = JSON.parse(process.env.CLIENTS);
const { open: OPEN, keyed: KEYED, limited: LIMITED, key: KEY } = settings;
const WRONG = "wrong-key";
const [DOGS, CAES] = ["Two dogs play in the snow.", "Dois cães brincam na neve."];
const [MORNING, DIA] = ["Good morning!", "Bom dia!"];
// Line breaks, characters that forms and addresses escape, and such beyond ASCII and beyond 16 bits.
const SPECIAL = `${DOGS}\n\n50% + 1 & more = “Zürich”? 🐶\n${DOGS}`;
// A refusal comes at once. Clients that send a request again wait a second or more between tries.
const MOST_SECONDS = 5;

// The clients are installed in the folder of work, not beside this file.
const require = createRequire(`${settings.work}/`);
const version = (name) => JSON.parse(fs.readFileSync(`${settings.work}/node_modules/${name}/package.json`)).version;

// Tells the recording proxy which call comes next.
async function mark(client, call) {
  if (settings.record) await fetch(`${OPEN}/-/mark`, { method: "POST", body: JSON.stringify({ client, call }) });
}

// How many requests the servers have answered, but for those about themselves.
async function requestsSeen() {
  let count = 0;
  for (const address of Object.values(settings.direct)) {
    const page = await (await fetch(`${address}/metrics`)).text();
    for (const [, labels, number] of page.matchAll(/^peregrine_http_requests_total\{(.*)\} (\d+)/gm)) {
      if (!labels.includes('api="operations"')) count += Number(number);
    }
  }
  return count;
}

// What the server's own API answers.
async function native(text) {
  const answer = await fetch(`${settings.direct.open}/v1/translate`, { method: "POST", body: JSON.stringify({ text, from: "en", to: "pt" }) });
  return (await answer.json()).translations[0].text;
}

const WANTED = await native(SPECIAL);

// A client under test.
class Client {
  constructor(name, shown = name) {
    Object.assign(this, { name: shown, version: version(name) });
    this.wanted = settings.only.length === 0 || settings.only.includes(shown);
  }

  // Runs a call. `requests` is how many requests it must send, where that matters.
  async call(name, action, requests = null) {
    if (!this.wanted) return;
    await mark(this.name, name);
    const before = await requestsSeen();
    const start = performance.now();
    let why = "";
    try {
      await action();
    } catch (error) {
      why = `${error?.name}: ${error?.message}`.replace(/\s+/g, " ");
    }
    const seconds = (performance.now() - start) / 1000;
    const sent = (await requestsSeen()) - before;
    if (!why && requests !== null && sent !== requests) why = `sent ${sent} requests, not ${requests}`;
    console.log(JSON.stringify({ client: this.name, version: this.version, call: name, ok: !why, seconds, why }));
  }

  // Runs a call that must fail with the client's own error, soon, and with no second try.
  async refused(name, kind, pattern, action, requests = 1) {
    const fails = async () => {
      const start = performance.now();
      let got;
      try {
        got = await action();
      } catch (error) {
        assert(error instanceof kind, `${error?.constructor?.name} and not ${kind.name}: ${error?.message}`);
        assert.match(error.message, pattern);
        const seconds = (performance.now() - start) / 1000;
        assert(seconds < MOST_SECONDS, `took ${seconds.toFixed(1)} s`);
        return;
      }
      assert.fail(`no ${kind.name} but ${JSON.stringify(got)}`);
    };
    await this.call(name, fails, requests);
  }
}

async function deeplNode() {
  const deepl = require("deepl-node");
  const it = new Client("deepl-node");
  const c = new deepl.DeepLClient("any", { serverUrl: OPEN });
  const texts = (results) => results.map((result) => result.text);

  await it.call("translate one", async () => {
    const result = await c.translateText(DOGS, "en", "pt-BR");
    assert.deepEqual([result.text, result.detectedSourceLang, result.billedCharacters], [CAES, "en", DOGS.length]);
  }, 1);
  await it.call("translate many", async () => {
    assert.deepEqual(texts(await c.translateText([DOGS, MORNING], "en", "pt-PT")), [CAES, DIA]);
  }, 1);
  await it.call("special characters", async () => assert.equal((await c.translateText(SPECIAL, "en", "pt-BR")).text, WANTED), 1);
  await it.call("detect", async () => {
    assert.equal((await c.translateText(DOGS, null, "pt-BR")).detectedSourceLang, "en");
  }, 1);
  await it.call("options that may be passed over", async () => {
    const options = { splitSentences: "off", preserveFormatting: true, formality: "prefer_less", context: "Winter.", modelType: "latency_optimized" };
    assert.equal((await c.translateText(DOGS, null, "pt-BR", options)).text, CAES);
  }, 1);
  await it.call("languages, each of them usable", async () => {
    const [sources, targets] = [await c.getSourceLanguages(), await c.getTargetLanguages()];
    assert(sources.some((language) => language.code === "en" && language.name === "English"), JSON.stringify(sources));
    assert(targets.length > 0 && targets.every((language) => language.supportsFormality === false), JSON.stringify(targets));
    // A program offers these languages and hands the chosen one back.
    for (const language of targets) assert.equal((await c.translateText(DOGS, null, language.code)).text, CAES);
  });
  await it.call("usage", async () => {
    const usage = await c.getUsage();
    assert(usage.character.limit > 0 && !usage.anyLimitReached(), JSON.stringify(usage));
  }, 1);
  await it.call("document", async () => {
    fs.writeFileSync("in.txt", `${DOGS}\n\n${MORNING}\n`);
    fs.rmSync("out.txt", { force: true });
    const status = await c.translateDocument("in.txt", "out.txt", "en", "pt-BR");
    assert.equal(fs.readFileSync("out.txt", "utf8"), `${CAES}\n\n${DIA}\n`);
    assert.deepEqual([status.status, status.billedCharacters], ["done", DOGS.length + MORNING.length]);
  }, 3);
  await it.call("document, step by step", async () => {
    const handle = await c.uploadDocument(Buffer.from(DOGS), null, "pt-PT", { filename: "a.txt" });
    assert((await c.getDocumentStatus(handle)).done());
    fs.rmSync("out.txt", { force: true });
    await c.downloadDocument(handle, "out.txt");
    assert.equal(fs.readFileSync("out.txt", "utf8"), CAES);
  }, 3);
  for (const options of [{ tagHandling: "html" }, { tagHandling: "xml", ignoreTags: ["x", "y"] }]) {
    await it.call(`tags as ${options.tagHandling}`, async () => {
      const { text } = await c.translateText("<p>Two <b>dogs</b> play in the snow.</p>", "en", "pt-BR", options);
      assert.equal(text, "<p>Dois <b>cães</b> brincam na neve.</p>");
    }, 1);
  }

  const error = deepl.DeepLError;
  const upload = (client, filename, options) => client.uploadDocument(Buffer.from("Hi"), "en", "pt-PT", { filename, ...options });
  await it.refused("document of another kind", error, /not supported/, () => upload(c, "a.exe"));
  await it.refused("document to another kind", error, /not supported/, () => upload(c, "a.txt", { extraRequestParameters: { output_format: "docx" } }));
  await it.refused("document with a glossary that is not there", error, /glossary/, () => upload(c, "a.txt", { glossary: "a-b" }));
  await it.refused("document in an unknown language", error, /xx/i, () => c.uploadDocument(Buffer.from("Hi"), null, "xx", { filename: "a.txt" }));
  const lost = { documentId: "0".repeat(32), documentKey: "k" };
  await it.refused("document that is not there", error, /no such document/, () => c.getDocumentStatus(lost));
  await it.refused("unknown target language", error, /xx/i, () => c.translateText("Hi", null, "xx"));
  await it.refused("unknown source language", error, /xx/i, () => c.translateText("Hi", "xx", "pt-BR"));
  await it.refused("pair that is not there", error, /de/i, () => c.translateText("Hi", "en", "de"));
  const options = [
    [{ tagHandling: "sgml" }, /tag_handling/],
    [{ formality: "more" }, /formality/],
    [{ glossary: "a-b" }, /glossary/],
    [{ glossaryIds: ["a-b", "c-d"] }, /glossary/],
    [{ styleRule: "a-b" }, /style_id/],
    [{ translationMemory: "a-b", translationMemoryThreshold: 80 }, /translation_memory_id/],
    [{ customInstructions: ["Be kind."] }, /custom_instructions/],
  ];
  for (const [option, pattern] of options) {
    const [name, value] = Object.entries(option)[0];
    await it.refused(`${name}=${value}`, error, pattern, () => c.translateText("Hi", "en", "pt-BR", option));
  }
  const entries = new deepl.GlossaryEntries({ entries: { dogs: "cachorros" } });
  const dictionary = { sourceLangCode: "en", targetLangCode: "pt", entries };
  const missing = deepl.GlossaryNotFoundError;
  await it.call("list glossaries", async () => assert.deepEqual(await c.listGlossaries(), []), 1);
  await it.call("a glossary made, used and deleted", async () => {
    const made = await c.createGlossary("t", "en", "pt", entries);
    assert.deepEqual([made.name, made.entryCount, made.ready], ["t", 1, true]);
    assert.deepEqual((await c.getGlossaryEntries(made)).entries(), { dogs: "cachorros" });
    for (const options of [{ glossary: made.glossaryId }, { glossaryIds: [made.glossaryId] }]) {
      const { text } = await c.translateText(DOGS, "en", "pt-BR", options);
      assert.match(text, /cachorros/);
    }
    await c.deleteGlossary(made);
    assert.deepEqual(await c.listGlossaries(), []);
  }, 6);
  await it.call("a glossary made, changed, used and deleted (v3)", async () => {
    const made = await c.createMultilingualGlossary("t", [dictionary]);
    const more = { ...dictionary, entries: new deepl.GlossaryEntries({ entries: { snow: "geada" } }) };
    assert.equal((await c.updateMultilingualGlossaryName(made, "u")).name, "u");
    await c.updateMultilingualGlossaryDictionary(made, more);
    assert.equal((await c.getMultilingualGlossary(made.glossaryId)).dictionaries[0].entryCount, 2);
    await c.replaceMultilingualGlossaryDictionary(made, more);
    const { text } = await c.translateText(DOGS, "en", "pt-BR", { glossary: made });
    assert.match(text, /geada/);
    await c.deleteMultilingualGlossary(made);
  }, 7);
  await it.call("glossary languages", async () => assert.equal((await c.getGlossaryLanguagePairs()).length, 1), 1);
  await it.refused("glossary that is not there", missing, /glossary/i, () => c.getGlossary("x"));
  await it.refused("entries of no glossary", missing, /glossary/i, () => c.getGlossaryEntries("x"));
  await it.refused("delete no glossary", missing, /glossary/i, () => c.deleteGlossary("x"));
  await it.call("list glossaries (v3)", async () => assert.deepEqual(await c.listMultilingualGlossaries(), []), 1);
  await it.refused("glossary that is not there (v3)", missing, /glossary/i, () => c.getMultilingualGlossary("x"));
  await it.refused("entries of no glossary (v3)", missing, /glossary/i, () => c.getMultilingualGlossaryDictionaryEntries("x", "en", "pt"));
  await it.refused("rename no glossary (v3)", missing, /glossary/i, () => c.updateMultilingualGlossaryName("x", "y"));
  await it.refused("change no glossary (v3)", missing, /glossary/i, () => c.replaceMultilingualGlossaryDictionary("x", dictionary));
  await it.refused("delete no glossary (v3)", missing, /glossary/i, () => c.deleteMultilingualGlossary("x"));
  await it.refused("delete no dictionary (v3)", missing, /glossary/i, () => c.deleteMultilingualGlossaryDictionary("x", "en", "pt"));
  await it.refused("rephrase", error, /\w+ \w+/, () => c.rephraseText("Hi"));
  await it.refused("style rules", error, /\w+ \w+/, () => c.getAllStyleRules());

  const right = new deepl.DeepLClient(KEY, { serverUrl: KEYED });
  const wrong = new deepl.DeepLClient(WRONG, { serverUrl: KEYED });
  const denied = deepl.AuthorizationError;
  await it.call("right key", async () => assert.equal((await right.translateText(DOGS, null, "pt-BR")).text, CAES), 1);
  await it.call("right key: usage, languages", async () => assert(await right.getUsage() && await right.getSourceLanguages()), 2);
  await it.refused("wrong key", denied, /auth/i, () => wrong.translateText(DOGS, null, "pt-BR"));
  await it.refused("wrong key: usage", denied, /auth/i, () => wrong.getUsage());
  await it.refused("wrong key: languages", denied, /auth/i, () => wrong.getTargetLanguages());
  await it.refused("wrong key: document", denied, /auth/i, () => upload(wrong, "a.txt"));
  // One try: more are what this client does on purpose.
  const limited = new deepl.DeepLClient("any", { serverUrl: LIMITED, maxRetries: 1 });
  await it.refused("too many requests", deepl.TooManyRequestsError, /too many/i, () => limited.translateText("Hi", null, "pt-BR"));
}

async function googleTranslate() {
  const { v2 } = require("@google-cloud/translate");
  const it = new Client("@google-cloud/translate");
  const client = (server, key) => {
    process.env.GOOGLE_CLOUD_TRANSLATE_ENDPOINT = `${server}/language/translate/v2`;
    return new v2.Translate({ projectId: "p", key });
  };
  const c = client(OPEN, "any");
  await it.call("translate one", async () => assert.equal((await c.translate(DOGS, { from: "en", to: "pt" }))[0], CAES), 1);
  await it.call("translate many", async () => {
    assert.deepEqual((await c.translate([DOGS, MORNING, ""], { from: "en", to: "pt" }))[0], [CAES, DIA, ""]);
  }, 1);
  await it.call("special characters", async () => assert.equal((await c.translate(SPECIAL, { from: "en", to: "pt" }))[0], WANTED), 1);
  await it.call("translate, detects", async () => {
    const [text, answer] = await c.translate(DOGS, "pt");
    assert.deepEqual([text, answer.data.translations[0].detectedSourceLanguage], [CAES, "en"]);
  }, 1);
  await it.call("detect", async () => {
    const [found] = await c.detect([DOGS, "Das ist ein deutscher Satz mit einigen Wörtern."]);
    assert.deepEqual(found.map((entry) => entry.language), ["en", "de"]);
    assert(found.every((entry) => entry.confidence > 0 && entry.confidence <= 1), JSON.stringify(found));
    assert.equal((await c.detect(DOGS))[0].input, DOGS);
  }, 2);
  await it.call("languages", async () => {
    const [languages] = await c.getLanguages();
    assert(languages.some((language) => language.code === "pt" && language.name === "Portuguese"), JSON.stringify(languages));
  }, 1);
  await it.refused("unknown language", Error, /xx/, () => c.translate("Hi", "xx"));
  await it.refused("unknown source", Error, /xx/, () => c.translate("Hi", { from: "xx", to: "pt" }));
  await it.call("markup", async () => {
    const [text] = await c.translate("<p>Two <b>dogs</b> play in the snow.</p>", { to: "pt", format: "html" });
    assert.equal(text, "<p>Dois <b>cães</b> brincam na neve.</p>");
  }, 1);
  await it.call("right key", async () => assert.equal((await client(KEYED, KEY).translate(DOGS, "pt"))[0], CAES), 1);
  const code = (status, action) => () => action().catch((error) => {
    assert.equal(error.code, status);
    throw error;
  });
  await it.refused("wrong key", Error, /key/i, code(403, () => client(KEYED, WRONG).translate("Hi", "pt")));
  await it.refused("wrong key: languages", Error, /key/i, code(403, () => client(KEYED, WRONG).getLanguages()));
  // Its own tries after 429 are four, with waits between them.
  const limited = client(LIMITED, "any");
  limited.options.autoRetry = false;
  await it.refused("too many requests", Error, /slow|limit|many/i, code(429, () => limited.translate("Hi", "pt")));
}

async function libretranslateTs() {
  const { libreTranslate: c } = require("libretranslate-ts");
  const it = new Client("libretranslate-ts");
  c.setApiEndpoint(OPEN);
  await it.call("translate one", async () => {
    assert.deepEqual(await c.translate(DOGS, "en", "pt"), { status: 200, translatedText: CAES, alternatives: undefined, error: undefined });
  }, 1);
  await it.call("translate many", async () => {
    assert.deepEqual((await c.translate([DOGS, MORNING], "en", "pt")).translatedText, [CAES, DIA]);
  }, 1);
  await it.call("special characters", async () => assert.equal((await c.translate(SPECIAL, "en", "pt")).translatedText, WANTED), 1);
  await it.call("alternatives", async () => {
    const { translatedText, alternatives } = await c.translate(DOGS, "auto", "pt", 2);
    assert(translatedText === CAES && alternatives.length > 0 && alternatives.length <= 2, JSON.stringify(alternatives));
  }, 1);
  await it.call("detect", async () => {
    const { status, language, confidence } = await c.detect(DOGS);
    assert(status === 200 && language === "en" && confidence > 1 && confidence <= 100, `${status} ${language} ${confidence}`);
  }, 1);
  await it.call("languages", async () => {
    const english = (await c.listLanguages()).find((language) => language.code === "en");
    assert.deepEqual(english, { code: "en", name: "English", targets: ["en", "pt"] });
  }, 1);
  // This client gives the error back and throws nothing.
  const fails = (server, key, target, pattern) => async () => {
    c.setApiEndpoint(server);
    c.setApiKey(key);
    const answer = await c.translate("Hi", "en", target);
    assert(answer.status === 500 && pattern.test(answer.error), JSON.stringify(answer));
  };
  await it.call("unknown language", fails(OPEN, null, "xx", /^xx is not supported$/), 1);
  await it.call("pair that is not there", fails(OPEN, null, "de", /de/), 1);
  await it.call("wrong key", fails(KEYED, WRONG, "pt", /^Invalid API key$/), 1);
  await it.call("no key", fails(KEYED, null, "pt", /get an API key$/), 1);
  await it.call("too many requests", fails(LIMITED, null, "pt", /^Slowdown: 1 per 1 minute$/), 1);
  c.setApiEndpoint(KEYED);
  await it.call("no key: languages", async () => assert((await c.listLanguages()).length > 0), 1);
  c.setApiKey(KEY);
  await it.call("right key", async () => assert.equal((await c.translate(DOGS, "en", "pt")).translatedText, CAES), 1);
  await it.call("right key: detect", async () => assert.equal((await c.detect(DOGS)).language, "en"), 1);
}

async function libretranslate() {
  const { translate } = require("libretranslate");
  const it = new Client("libretranslate");
  const ask = (query, options) => translate({ query, source: "en", target: "pt", apiurl: OPEN, ...options });
  // It asks for the languages before each translation.
  await it.call("translate one", async () => assert.equal(await ask(DOGS), CAES), 2);
  await it.call("translate many", async () => assert.deepEqual(await ask([DOGS, MORNING]), [CAES, DIA]), 2);
  await it.call("special characters", async () => assert.equal(await ask(SPECIAL), WANTED), 2);
  await it.call("detect", async () => assert.equal(await ask(DOGS, { source: undefined }), CAES), 2);
  await it.refused("unknown language", TypeError, /not found/, () => ask("Hi", { target: "xx" }));
  // It gives nothing back where the server refuses.
  await it.call("pair that is not there", async () => assert.equal(await ask("Hi", { source: "pt", target: "en" }), undefined), 2);
  // Its key goes into a field that LibreTranslate does not read.
  await it.call("key in its own field", async () => assert.equal(await ask("Hi", { apiurl: KEYED, apiKey: KEY }), undefined), 2);
  await it.call("too many requests", async () => assert.equal(await ask("Hi", { apiurl: LIMITED }), undefined), 2);
}

async function translate() {
  const { Translate } = await import(pathToFileURL(require.resolve("translate")));
  const it = new Client("translate", "translate (npm)");
  const ask = (server, key, text, to = "pt") => {
    const translate = new Translate({ engine: "libre", url: `${server}/translate`, key });
    return translate(text, { from: "en", to });
  };
  await it.call("translate one", async () => assert.equal(await ask(OPEN, undefined, DOGS), CAES), 1);
  await it.call("translate many", async () => assert.deepEqual(await ask(OPEN, undefined, [DOGS, MORNING]), [CAES, DIA]), 1);
  await it.call("special characters", async () => assert.equal(await ask(OPEN, undefined, SPECIAL), WANTED), 1);
  await it.refused("unknown language", Error, /de/, () => ask(OPEN, undefined, "Hi", "de"));
  await it.call("right key", async () => assert.equal(await ask(KEYED, KEY, DOGS), CAES), 1);
  await it.refused("wrong key", Error, /^Invalid API key$/, () => ask(KEYED, WRONG, "Hi"));
  await it.refused("no key", Error, /get an API key$/, () => ask(KEYED, undefined, "Hi"));
  await it.refused("too many requests", Error, /^Slowdown: 1 per 1 minute$/, () => ask(LIMITED, undefined, "Hi"));
}

for (const suite of [deeplNode, googleTranslate, libretranslateTs, libretranslate, translate]) await suite();
