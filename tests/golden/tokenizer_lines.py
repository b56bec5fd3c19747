"""Lines on which tokenizers are compared: many scripts, emoji, code, white space, malformed UTF-8.

make_tokenizers.py and check_tokenizers.py use them. The same seed gives the same lines.
"""
import random

SENTENCES = """
The quick brown fox jumps over the lazy dog, and it doesn't care; they've seen we'll go, I'm sure he'd say.
THEY'VE GONE AND I'LL STAY, WE'RE LATE, IT'S OVER, I'D KNOW, DON'T ASK 'EM.
In the beginning God created the heaven and the earth. And the earth was without form, and void.
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép.
Victor jagt zwölf Boxkämpfer quer über den großen Sylter Deich; STRASSE und Straße, ﬁn, ﬂ, ﬆ, ŉ.
Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L'été, c'est ça qu'il aime !
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Qué? ¡Sí! 1.234.567,89 €
Съешь же ещё этих мягких французских булок, да выпей чаю. Ёлка №5, 100 %.
Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне знаємо.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο ΟΔΥΣΣΕΥΣ ἦν ἀνήρ, ᾧ ᾼ ῼ.
דג סקרן שט בים מאוכזב ולפתע מצא חברה. בְּרֵאשִׁית בָּרָא אֱלֹהִים
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. السَّلَامُ عَلَيْكُمْ ١٢٣٤٥
یک متن فارسی با نیم‌فاصله: می‌خواهم، کتاب‌ها، ۱۲۳۴۵۶۷۸۹۰؟
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। १२३ क्‍ष ज़
আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না। ১২৩৪ ড়
நான் கண்ணாடி சாப்பிடுவேன், அதனால் எனக்கு ஒரு கேடும் வராது. ௧௨௩ கொ
నేను గాజు తినగలను మరియు అలా చేసినా నాకు ఏమి ఇబ్బంది లేదు
ನನಗೆ ಹಾನಿ ಆಗದೆ, ನಾನು ಗಾಜನ್ನು ತಿನಬಹುದು
എനിക്ക് ഗ്ലാസ് തിന്നാം. അതെന്നെ വേദനിപ്പിക്കില്ല.
මනොපුබ්බඞ්ගමා ධම්මා, මනොසෙට්ඨා මනොමයා
ฉันกินกระจกได้ แต่มันไม่ทำให้ฉันเจ็บ น้ำ ๑๒๓
ຂອ້ຍກິນແກ້ວໄດ້ໂດຍທີ່ມັນບໍ່ໄດ້ເຮັດໃຫ້ຂອ້ຍເຈັບ
ကျွန်တော် ကျွန်မ မှန်စားနိုင်တယ်။ ၎င်းကြောင့် ထိခိုက်မှု မရှိပါ။
ខ្ញុំអាចញុំកញ្ចក់បាន ដោយគ្មានបញ្ហារ
ཤེལ་སྒོ་ཟ་ནས་ང་ན་གི་མ་རེད།
მინას ვჭამ და არა მტკივა. ႠႡႢ ᲐᲑᲒ
Կրնամ ապակի ուտել և ինծի անհանգիստ չըներ։ և
እግዚአብሔር ፍቅር ነው። ሰማይ አይታረስ ንጉሥ አይከሰስ። ፩፪፫
我能吞下玻璃而不伤身体。汉字、標點,全角！？「引号」……——《书名》 三〇〇五年
天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。𠀀𠮷野家𪚥
いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナ・ﾊﾝｶｸ ﾊﾟｰｾﾝﾄ、がぎぐ か゛
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 각 ㄱㄴㄷ ᄀ
Tôi có thể ăn thủy tinh mà không hại gì. Nguyễn Văn Thành, Đặng
Ég get etið gler án þess að meiða mig. Þórður, ðæöþ
Cam yiyebilirim, bana zararı dokunmaz. İSTANBUL ıİiI ışık ÇĞÖŞÜ
ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ᛫ᚠᛁᚱᚪ᛫ᚷᛖᚻᚹᛦᛚᚳᚢᛗ ⠊⠀⠉⠁⠝ 𐌼𐌰𐌲 𐌲𐌻𐌴𐍃 𓀀𓂀 𒀀𒁀
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β ⇒ γ, ∑ᵢ₌₁ⁿ xᵢ² ≤ √2π, Å ≠ Å ≠ Å, ½ ¾ Ⅷ ② ㊷ ﹪ ％
def f(x: int) -> str:\n    return f"{x!r:>10}"  # comment\n\tif x >= 0 and x != 0x1F: pass
for (int i = 0; i < n; ++i) { a[i] += b[i] * 3.14e-10f; } // ok?\r\n\r\n#include <vector>
{"key": [1, 2.5e+3, null, true], "text": "a\\u00e9\\n"}  <div class="x">&nbsp;</div> https://example.com/a?b=c&d=%20#e
x=1;y=22;z=333;w=4444;v=55555;u=123456;t=1234567890123456789 1,000,000.00 2024-02-29T23:59:60Z +49-30-1234567
e.g. U.S.A. — "quotes" ‘single’ ’tis ''double'' ``code`` (parens) [brackets] <angles> $100 #tag @user a_b __init__ ***bold***
""".strip().split("\n")

EMOJI = ["😀", "😂🤣", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "❤️", "☺", "1️⃣", "🫠", "👨🏿‍🚀", "🧑‍🤝‍🧑", "✊🏻✊🏿", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
         "©️", "™", "♻︎", "🤷‍♀️", "🥹"]
SPACES = [" ", "  ", "   ", "    ", " " * 7, " " * 40, "\t", "\t\t", "\n", "\n\n", "\r\n", "\r\n\r\n", "\n \n", " \n", "\n\n\n\n", "\xa0", "\xa0 ", "\u3000", "\u2003\u2009", "\u2028", "\u2029", "\x85",
          "\x0b", "\x0c", "\x1c", "\x1f", "\u200b", "\u180e", "\ufeff", "\u1680", "\u202f", " \t \t", "\t\n", "\n\t", "\u205f", "\u2060"]
ODD = ["\x00", "\x01\x02", "\x7f", "\u0301", "e\u0301", "a\u0328\u0301", "\u0301\u0328o", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u212b", "\u2126", "\u1e9e", "\u017f", "'\u017f", "\u212a", "\ufb01",
       "\u0f73", "\U0001d15e", "\u0958", "\u2adc", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\U000f0000", "\u0378", "\U000e01ef", "\u2581", "\u2581\u2581", "a\u2581b", "<0x41>", "<0xE2>", "\u0130", "\u0149",
       "\u01f0", "\u0390", "\u00ad", "\u200d", "\u200c", "\u0e33", "\u06dd", "\u0600", "\u203f", "\u00aa", "\u00b2", "\u2160", "\u3007", "\u3021", "\u1d7ce"[:1], "\U0001d7ce", "\u0660", "\u0bf0"]
MALFORMED = [b"\xff", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\xaf", b"\xf8\x88\x80\x80\x80", b"\xfe\xfe", b"\xf0\x80\x80\x80", b"\xe2\x28\xa1",
             b"a\xc3b", b"\xc3\xc3\xa9", b"\xed\xbf\xbf", b"\xf0\x9f\xff\x98"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|begin_of_text|>", "<|eot_id|>", "[INST]", "[/INST]", "<bos>", "<eos>", "<think>", "</think>", "<|fim_prefix|>",
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "<|endoftext", "<tool_call>", "word_token", "xword_tokeny", "ADDED", "<|extra_0|>"]
# What every table of Unicode since version 9 has.
PLANES = [(0x20, 0x7e)] * 6 + [(0xa1, 0x24f)] * 3 + [(0x250, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0xdff), (0xe00, 0xfff), (0x1000, 0x10ff), (0x1100, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x206f),
          (0x2070, 0x218f), (0x2190, 0x27bf), (0x2e80, 0x30ff), (0x3400, 0x4db5), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xfb00, 0xfdff), (0xfe20, 0xffef), (0x10000, 0x1044f), (0x1d400, 0x1d7ff),
          (0x1f300, 0x1f64f), (0x20000, 0x2a6d6), (0x2f800, 0x2fa1d)]


def words(rng):
    sentence = rng.choice(SENTENCES).replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")
    parts = sentence.split(" ")
    begin = rng.randrange(len(parts))
    return " ".join(parts[begin:begin + rng.randint(1, 12)])


def points(rng):
    low, high = rng.choice(PLANES)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 12)))


def number(rng):
    return "".join(rng.choice("0123456789.,٣४५６②") for _ in range(rng.randint(1, 14)))


def cased(rng):
    return rng.choice([str.upper, str.lower, str.title, str.swapcase])(words(rng))


def soup(rng):
    return "".join(rng.choice("aAzZ09 '\".,!?-_/\\\n\t\u00e9\u4e2d\u0433") for _ in range(rng.randint(1, 40)))


def line(rng):
    """The bytes of one line; about one in eight is malformed."""
    makers = [words, words, words, cased, points, number, soup, lambda r: r.choice(EMOJI) * r.randint(1, 3), lambda r: r.choice(SPACES), lambda r: r.choice(SPACES) + r.choice(SPACES),
              lambda r: r.choice(ODD), lambda r: r.choice(SPECIALS), lambda r: r.choice("aé中я.!7 ") * r.randint(1, 90)]
    parts = [rng.choice(makers)(rng).encode("utf-8") for _ in range(rng.randint(1, 6))]
    if rng.random() < 0.12:
        parts.insert(rng.randrange(len(parts) + 1), rng.choice(MALFORMED))
    joint = rng.choice([b"", b" ", b" ", b"\n"])
    return joint.join(parts)


def lines(count, seed=46):
    rng = random.Random(seed)
    fixed = [s.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r").encode("utf-8") for s in SENTENCES]
    fixed += [s.encode("utf-8") for s in EMOJI + SPACES + ODD + SPECIALS] + MALFORMED + [b"", b" a", b"a ", "".join(EMOJI).encode(), b"".join(MALFORMED)]
    return (fixed + [line(rng) for _ in range(max(0, count - len(fixed)))])[:count]


def escape(text):
    """A line as a literal of C, which absl::CUnescape reads: valid UTF-8 stays as it is."""
    out = ""
    for c in text.decode("utf-8", errors="surrogateescape"):
        code = ord(c)
        if 0xdc80 <= code <= 0xdcff:
            out += f"\\{code - 0xdc00:03o}"
        elif code < 0x20 or code == 0x7f or c in "\\\u0085\u2028\u2029":
            out += "".join(f"\\{byte:03o}" for byte in c.encode("utf-8"))
        else:
            out += c
    return out
