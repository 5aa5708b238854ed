"""Verifies a bundle of `politesse audit bundle` without politesse.

    python3 verify_bundle.py BUNDLE.jsonl.gz [KEY]

KEY is the public key of the record, from somebody you trust. Exit codes: 0 all is proved, 1
something does not fit, 3 all fits and KEY is missing. Makes the leaf of each row again (decision
020, Leaves), leads them to the root of the head (RFC 9162, section 2.1), verifies its signature
(RFC 8032, C2SP signed-note). Refuses all that politesse does not write.
"""
import base64, bisect, gzip, hashlib, json, re, sys

ORDER = "bundle( value| robots| decision)+( hash)* head key sha256"
# Names in the lines of a kind, with their types. The other kinds are texts.
FORMS = {
    "bundle": "version:i made_at:t record:t from:T until:T host:T",
    "value": "number:i kind:t columns:l", "robots": "sha256:t body:t",
    "decision": "seq:i time_us:i client:i crawler:i method:i origin:i path:t ruling:i reading:T "
                "wait_ms:i policy:i snapshot:I salt:t ending:O",
    "ending": "seq:i status:I sent:i directives:I bytes:i error:I"}
FORMS = {kind: dict(pair.split(":") for pair in form.split()) for kind, form in FORMS.items()}
TYPES = {"t": [str], "b": [str], "i": [int], "l": [list], "o": [dict]}
TYPES |= {key.upper(): [*types, type(None)] for key, types in TYPES.items()}  # or null
# Tables: first byte of a value, and its columns (text, integer, blob; capital: or null).
KINDS = {
    "client": (b"c", "tT"), "crawler": (b"a", "tTT"), "origin": (b"o", "tt"), "term": (b"t", "t"),
    "ruling": (b"r", "tttITtTT"), "directives": (b"d", "tTT"), "policy": (None, "t"),
    "snapshot": (b"s", "tTtIiitTBTTT")}

def check(holds, otherwise):
    if not holds:
        raise ValueError(otherwise)

def check_form(line, kind):
    form = FORMS.get(kind)
    is_form = type(line) is str if form is None else list(line) == list(form) and all(
        type(value) in TYPES[form[name]] for name, value in line.items())
    check(is_form, f"a line has other names or values: {line}")

def read_lines(path):
    hashed, kinds, packed = hashlib.sha256(), [], open(path, "rb")
    lines = gzip.open(packed)
    while line := lines.readline(32 << 20):  # a few bytes of gzip can stand for gigabytes
        (kind, content), = json.loads(line).items()
        again = json.dumps({kind: content}, separators=(",", ":")).replace("\x7f", "\\u007f")
        check(line == f"{again}\n".encode(), "a line is too long, cut, or written otherwise")
        kinds.append(kind)
        check_form(content, kind)
        check(kind != "sha256" or content == hashed.hexdigest(), "a line is not as it was")
        hashed.update(line)
        yield kind, content
    check(re.fullmatch(ORDER, " ".join(kinds)), "the lines are others than a bundle has")
    packed.seek(-4, 2)  # gzip ends with the size; the module passes over zeros after it
    check(int.from_bytes(packed.read(), "little") == lines.tell() % 2**32, "the file goes on")

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()

def from_hex(value, decode=bytes.fromhex, encode=bytes.hex):
    data = decode(value)
    check(encode(data) == value, "bytes are written otherwise")
    return data

def from_base64(value):
    return from_hex(value.encode(), base64.b64decode, base64.b64encode)

def number(value):
    return value.to_bytes(8, "big", signed=True)

def short(value):
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return bytes([size]) + value.to_bytes(size, "big", signed=True)

def text(value):
    return len(value.encode()).to_bytes(4, "big") + value.encode()

def blob(value):
    return (len(value) // 2).to_bytes(4, "big") + from_hex(value)

def optional(value, encode=bytes):
    return b"\0" if value is None else b"\1" + encode(value)

def value_digest(kind, columns):
    first, types = KINDS[kind]
    is_typed = [type(value) in TYPES[letter] for letter, value in zip(types, columns)]
    check(len(columns) == len(types) and all(is_typed), "a value has other columns")
    if kind == "policy":
        return sha(columns[0].encode())
    encode = {"t": text, "i": number, "b": blob}
    encode |= {key.upper(): lambda value, e=e: optional(value, e) for key, e in encode.items()}
    return sha(first, *(encode[type](value) for type, value in zip(types, columns)))

def leaves(row, digest, record, values):
    salt, path = from_hex(row["salt"]), text(row["path"]) + optional(row["reading"], text)
    client, origin, snapshot = digest(row["client"]), digest(row["origin"]), digest(row["snapshot"])
    site = values[row["snapshot"] - 1][1] if snapshot else ""
    kept = not origin or values[row["origin"] - 1][1:] == (site, re.sub(r"^\w+://|:\d+$", "", site))
    check(len(salt) != 32 or kept and client + path == bytes(5), "a redacted row has too much")
    commitment = salt if len(salt) == 32 else sha(salt, client + origin + path)
    shared = [digest(row[name]) for name in ("crawler", "method", "ruling", "policy")]
    context = sha(b"C", record, *shared) + optional(snapshot)
    begin = map(short, (row["seq"], row["time_us"], row["wait_ms"]))
    yield row["seq"], sha(b"D", *begin, commitment, context)
    if end := row["ending"]:
        outcome = sha(b"O", record, optional(end["status"], number), number(end["sent"]),
                      optional(digest(end["directives"])), optional(digest(end["error"])))
        yield end["seq"], sha(b"E", *map(short, (row["seq"], end["seq"], end["bytes"])), outcome)

def root(chosen, places, start, end, proof):
    if bisect.bisect_left(places, start) == bisect.bisect_left(places, end):
        return next(proof)
    if end - start == 1:
        return sha(b"\0", chosen[start])
    middle = start + (1 << (end - start - 1).bit_length() - 1)
    left = root(chosen, places, start, middle, proof)
    return sha(b"\1", left, root(chosen, places, middle, end, proof))

P = 2**255 - 19  # Ed25519 in affine coordinates, which is slow and short
D = -121665 * pow(121666, -1, P) % P
def add(one, two):
    (x1, y1), (x2, y2) = one, two
    c = D * x1 * x2 * y1 * y2
    return (x1 * y2 + x2 * y1) * pow(1 + c, -1, P) % P, (y1 * y2 + x1 * x2) * pow(1 - c, -1, P) % P

def times(factor, point):
    even = times(factor // 2, add(point, point)) if factor else (0, 1)
    return add(even, point) if factor % 2 else even

def point(data):
    sign, y = divmod(int.from_bytes(data, "little"), 1 << 255)
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if x * x % P == square else x * pow(2, (P - 1) // 4, P) % P
    check(x * x % P == square and y < P, "the key or the signature is no point")
    return (P - x if x & 1 != sign else x), y

def is_signed(key, message, signature):
    order, base = 2**252 + 27742317777372353535851937790883648493, 4 * pow(5, -1, P) % P
    scalar = int.from_bytes(signature[32:], "little")
    challenge = hashlib.sha512(signature[:32] + key + message).digest()
    right = times(int.from_bytes(challenge, "little") % order, point(key))
    left = times(scalar, point(base.to_bytes(32, "little")))
    return scalar < order and left == add(point(signature[:32]), right)

def signed_lines(note, key):
    message, _, below = note.rpartition("\n\n")
    name, own, encoded = key.split("+", 2)
    line = re.fullmatch(f"\u2014 {re.escape(name)} (\\S+)\n", below)
    public, value = from_base64(encoded), from_base64(line[1])
    is_own = public[0] == 1 and from_hex(own) == value[:4] == sha(name.encode(), b"\n", public)[:4]
    check(is_own and is_signed(public[1:], f"{message}\n".encode(), value[4:]), "another signer")
    return message.split("\n")

def main(path, key=None):
    digests, used, chosen, proof = [], set(), {}, []
    robots, bodies, before, texts = [], set(), 0, {}
    def digest(value):
        check(value is None or 0 <= value <= len(digests), "a row has a value that is not there")
        used.add(value)
        return digests[value - 1][0] if value else None if value is None else b""
    for kind, line in read_lines(path):
        if kind == "value":
            digests.append((value_digest(line["kind"], line["columns"]), *line["columns"][:2]))
            check(line["number"] == len(digests), "a value has another number")
            bodies.update(filter(None, line["columns"][8:9]))  # of a snapshot
        elif kind == "robots":
            check(sha(from_base64(line["body"])).hex() == line["sha256"], "a robots.txt is another")
            robots.append(line["sha256"])
        elif kind == "decision":
            check_form(line["ending"] or dict.fromkeys(FORMS["ending"], 0), "ending")
            check(before < (before := line["seq"]), "the rows are in another order")
            for entry, leaf in leaves(line, digest, from_hex(texts["bundle"]["record"]), digests):
                check(0 < entry and entry - 1 not in chosen, "two rows have one number")
                chosen[entry - 1] = leaf
        elif kind == "hash":
            proof.append(from_hex(line))
            check(len(proof[-1]) == 32, "a hash has another length")
        else:
            texts[kind] = line
    check(key in (None, texts["key"]), "the bundle has another key")
    lines = signed_lines(texts["head"], texts["key"])
    check(texts["bundle"]["version"] == 1, "it is of another version")
    check(lines[0] == "politesse/" + texts["bundle"]["record"], "the head is of another record")
    check(used - {0, None} == set(range(1, len(digests) + 1)), "no row has one of the values")
    check(sorted(robots) == sorted(bodies), "a robots.txt is missing, or is there for no row")
    size, expected, rest = int(lines[1]), from_base64(lines[2]), iter(proof)
    found = chosen and root(chosen, sorted(chosen), 0, size, rest)
    check(found == expected and max(chosen) < size and not list(rest), "a row is not as it was")
    signer = "signed by the key" if key else "signer unknown: pass the public key"
    print(f"{len(chosen)} of {size} entries are on record as they stand here; {signer}; {lines[3]}")
    print("not checked: what was asked for, and whether the verdicts follow from the robots.txt")
    return 0 if key else 3

if len(sys.argv) not in (2, 3):
    print("usage: python3 verify_bundle.py BUNDLE.jsonl.gz [KEY]", file=sys.stderr)
    sys.exit(2)
try:
    sys.exit(main(*sys.argv[1:]))
except Exception as error:  # anyone may have made the file
    print(f"does not fit: {error!r}")
    sys.exit(1)
