"""Seeded texts such as shells and agents send: listings, tables, logs, dumps, data, code, prose."""

from __future__ import annotations

import json
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "they",
    "at",
    "be",
    "this",
    "from",
    "have",
    "or",
    "by",
    "one",
    "had",
    "not",
    "but",
    "what",
    "all",
    "were",
    "when",
    "we",
    "there",
    "can",
    "an",
    "your",
    "which",
    "their",
    "said",
    "if",
    "will",
    "each",
    "about",
    "how",
    "up",
    "out",
    "them",
    "then",
    "she",
    "many",
    "some",
]
CHINESE = "人工智能的发展正在改变我们的生活方式机器学习模型可以理解自然语言并生成文本昨天下午三点他在北京开会"


def listing(r: random.Random) -> str:
    names = [
        f"{r.choice(WORDS)}_{r.choice(WORDS)}{r.choice(['.py', '.so.1.2', '', '.tar.gz'])}" for _ in range(30)
    ]
    lines = [
        f"-rw-r--r-- {r.randrange(9)} root root {r.randrange(10**7):>9} Nov {r.randrange(31):>2} "
        f"{r.randrange(24):02}:{r.randrange(60):02} {name}"
        for name in names
    ]
    return f"./{r.choice(WORDS)}/lib:\ntotal {r.randrange(9999)}\n" + "\n".join(lines) + "\n\n"


def processes(r: random.Random) -> str:
    return "\n".join(
        f"{r.choice(['root', 'www-data', 'postgres']):<10}{r.randrange(99999):>7} {r.random() * 9:4.1f} "
        f"{r.random() * 9:4.1f} {r.randrange(10**7):>8} {r.randrange(10**6):>7} ?        Ssl  "
        f"Nov{r.randrange(30):02} {r.randrange(99):>3}:{r.randrange(60):02} "
        f"/usr/sbin/{r.choice(WORDS)}d --port={r.randrange(65536)} -D"
        for _ in range(25)
    )


def log(r: random.Random) -> str:
    return "\n".join(
        f"2026-11-{r.randrange(1, 31):02}T{r.randrange(24):02}:{r.randrange(60):02}:"
        f"{r.random() * 60:09.6f}Z "
        f"{r.choice(['INFO', 'WARN', 'ERROR'])} [worker-{r.randrange(64)}] req={r.getrandbits(64):016x} "
        f"ip=10.{r.randrange(256)}.{r.randrange(256)}.{r.randrange(256)} took={r.random() * 900:.3f}ms "
        f"GET /api/v{r.randrange(4)}/{r.choice(WORDS)}/{r.randrange(10**6)} status={r.choice([200, 404])}"
        for _ in range(20)
    )


def hexdump(r: random.Random) -> str:
    def line(at: int) -> str:
        data = r.randbytes(16)
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in data)
        return f"{at:08x}: " + " ".join(data[i : i + 2].hex() for i in range(0, 16, 2)) + f"  {shown}"

    return "\n".join(line(16 * number) for number in range(40))


def base64_lines(r: random.Random) -> str:
    letters = string.ascii_letters + string.digits + "+/"
    return "\n".join("".join(r.choices(letters, k=76)) for _ in range(r.choice((1, 12, 40))))


def json_text(r: random.Random) -> str:
    rows = [
        {
            "id": r.randrange(10**9),
            f"{r.choice(WORDS)}_name": " ".join(r.choices(WORDS, k=3)),
            "tags": r.choices(WORDS, k=3),
            "score": r.random() * 1000,
            "hash": f"{r.getrandbits(128):032x}",
            "ok": r.random() < 0.5,
            "next": None,
        }
        for _ in range(12)
    ]
    return json.dumps(rows, indent=r.choice((None, 2, 4)))


def python_code(r: random.Random) -> str:
    def function() -> str:
        name, argument, other = (f"{r.choice(WORDS)}_{r.choice(WORDS)}" for _ in range(3))
        return (
            f"def {name}(self, {argument}: list[str], {other}: int = {r.randrange(99)}) -> dict[str, Any]:\n"
            f'    """{" ".join(r.choices(WORDS, k=9)).capitalize()}."""\n'
            f"    if not {argument} or len({argument}) > {other}:\n"
            f'        raise ValueError(f"{r.choice(WORDS)} {{{argument}!r}}")\n'
            f"    result = {{each.strip(): index for index, each in enumerate({argument})}}\n"
            f"    return self._{other}(result.items(), key=lambda pair: pair[{r.randrange(2)}])\n\n"
        )

    return "".join(function() for _ in range(r.choice((2, 8))))


def prose(r: random.Random) -> str:
    sentences = (
        " ".join(r.choices(WORDS, k=r.randrange(5, 25))).capitalize() for _ in range(r.choice((4, 30)))
    )
    return ". ".join(sentences) + "."


def chinese(r: random.Random) -> str:
    start = r.randrange(len(CHINESE))
    return (
        "，".join((CHINESE[start:] + CHINESE)[: r.randrange(8, 50)] for _ in range(r.choice((2, 20)))) + "。"
    )


KINDS = [listing, processes, log, hexdump, base64_lines, json_text, python_code, prose, chinese]

LANGUAGES = {
    "Afrikaans": "Die regering het besluit om die skole in die platteland te herbou.",
    "Amharic": "አዲስ አበባ የኢትዮጵያ ዋና ከተማ ናት። ብዙ ሕዝብ ይኖርባታል።",
    "Arabic": "القاهرة هي عاصمة جمهورية مصر العربية وأكبر مدينة فيها من حيث عدد السكان.",
    "Armenian": "Երևանը Հայաստանի մայրաքաղաքն է և ամենամեծ քաղաքը։",
    "Basque": "Gobernuak erabaki du ikastetxe berriak eraikitzea.",
    "Bengali": "ঢাকা বাংলাদেশের রাজধানী এবং বৃহত্তম শহর, যেখানে কোটি মানুষ বাস করে।",
    "Burmese": "ရန်ကုန်မြို့သည် မြန်မာနိုင်ငံ၏ အကြီးဆုံးမြို့ ဖြစ်သည်။",
    "Chinese": "人工智能正在改变我们的生活方式，许多公司都在投入大量资金研究新的技术。",
    "Dutch": "De gemeenteraad besluit vanavond over de aanleg van een nieuwe fietsbrug.",
    "Finnish": "Helsinki on Suomen pääkaupunki ja maan väkiluvultaan suurin kaupunki.",
    "Georgian": "თბილისი საქართველოს დედაქალაქი და უდიდესი ქალაქია.",
    "German": "Die Bundesregierung beschloss umfangreiche Maßnahmen zur Förderung der Wissenschaft.",
    "Greek": "Η Αθήνα είναι η πρωτεύουσα της Ελλάδας και η μεγαλύτερη πόλη της χώρας.",
    "Hebrew": "ירושלים היא עיר הבירה של מדינת ישראל והעיר הגדולה ביותר בה.",
    "Hindi": "भारत एक विशाल देश है जहाँ अनेक भाषाएँ बोली जाती हैं और विविध संस्कृतियाँ पाई जाती हैं।",
    "Indonesian": "Pemerintah daerah memutuskan membangun kembali jembatan yang rusak akibat banjir.",
    "Italian": "Il consiglio comunale discute stasera la costruzione di una nuova pista ciclabile.",
    "Japanese": "東京は日本の首都であり、世界最大の都市の一つです。人工知能は急速に発展しています。",
    "Khmer": "ភ្នំពេញគឺជារាជធានីនៃព្រះរាជាណាចក្រកម្ពុជា។",
    "Korean": "서울은 대한민국의 수도이며 세계에서 가장 큰 도시 중 하나입니다.",
    "Polish": "Warszawa jest stolicą Polski i największym miastem kraju, położonym nad Wisłą.",
    "Russian": "Москва является столицей Российской Федерации и крупнейшим городом страны.",
    "Swahili": "Serikali imeamua kujenga shule mpya vijijini na kuajiri walimu zaidi.",
    "Tagalog": "Nagpasya ang pamahalaan na magpatayo ng mga bagong paaralan sa mga lalawigan.",
    "Tamil": "சென்னை தமிழ்நாட்டின் தலைநகரமாகும், இந்தியாவின் நான்காவது பெரிய நகரம்.",
    "Thai": "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย",
    "Turkish": "İstanbul, Türkiye'nin en kalabalık şehridir ve tarihî açıdan önemlidir.",
    "Uzbek": "Hukumat qishloqlarda yangi maktablar qurish va oʻqituvchilarni olishga qaror qildi.",
    "Vietnamese": "Hà Nội là thủ đô của nước Cộng hòa Xã hội chủ nghĩa Việt Nam.",
    "emoji": "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👨🏿\u200d💻 😀🎉🚀🧠",
    "signs": "∀x∈ℝ: ∑ᵢ₌₁ⁿ αᵢ·βᵢ ≤ √(∫₀^∞ f(x)²dx) ⟹ ∂²φ/∂t² = ∇·(κ∇φ)",
}
"""A sentence or two in each language, and in what is not one."""
