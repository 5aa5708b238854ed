"""Verifies a bundle of `politesse audit bundle` without politesse.

    python3 verify_bundle.py BUNDLE.zip [KEY]

KEY is the public key of the record, from somebody you trust. Exit codes: 0 all is proved, 1
something does not fit, 3 all fits and nobody has said whose key it is. Makes the leaf of each
row again (decision 020, Leaves), leads them to the root of the head (RFC 9162, section 2.1),
verifies its signature (RFC 8032, C2SP signed-note). Refuses whatever else is in the archive
or in a row, since nothing proves it. `politesse audit verify` decides again, too, and holds
the report against the rows.
"""
import base64, hashlib, json, sys, zipfile
from bisect import bisect_left

FILES = {"README.txt", "report.html", "rows.jsonl", "proof.txt", "head.txt", "key.txt"}
# Keys of a line of rows.jsonl, in their order, with the types of their values.
WORD, COUNT = (str,), (int,)
FIRST = dict(bundle=COUNT, program=WORD, record=WORD, host=(str, type(None)))
FIRST |= {"from": (str, type(None)), "until": (str, type(None))}
VALUE = dict(value=COUNT, kind=WORD, columns=(list,))
ENDING = dict(seq=COUNT, status=(int, type(None)), sent=COUNT, directives=(int, type(None)),
              bytes=COUNT, error=(int, type(None)))
ROW = dict(seq=COUNT, time_us=COUNT, wait_ms=COUNT, salt=WORD, client=COUNT, origin=COUNT, path=WORD,
           reading=(str, type(None)), crawler=COUNT, method=COUNT, ruling=COUNT, policy=COUNT,
           snapshot=(int, type(None)), ending=(dict, type(None)))

# Tables: first byte of a value, and its columns (text, integer, blob; capital: or null).
KINDS = {
    "client": (b"c", "tT"), "crawler": (b"a", "tT"), "origin": (b"o", "tt"), "term": (b"t", "t"),
    "ruling": (b"r", "tttITtT"), "directives": (b"d", "tT"), "policy": (None, "t"),
    "snapshot": (b"s", "tTtIiitTBTT")}

def check(holds, otherwise):
    if not holds:
        raise ValueError(otherwise)

def check_form(line, form):
    types = {name: type(value) for name, value in line.items()}
    is_form = types.keys() == form.keys() and all(types[name] in form[name] for name in form)
    check(is_form, f"a line of rows.jsonl has other keys or values: {types}")

def object_of(pairs):
    check(len(dict(pairs)) == len(pairs), "a line of rows.jsonl has a key twice")
    return dict(pairs)

def check_archive(path, archive, names):
    files, end = archive.infolist(), 0
    check({file.filename for file in files} == names and len(files) == len(names),
          "the archive has other files than a bundle has")
    for file in files:  # one behind the other, nothing before or between them
        check(file.header_offset == end, "there is something beside the files of the archive")
        end += 30 + len(file.filename) + file.compress_size
    with open(path, "rb") as whole:
        check(archive.start_dir == end, "there is something before the directory of the archive")
        whole.seek(-22, 2)
        check(whole.read(4) == b"PK\5\6", "there is something behind the archive")

def sha(*parts):
    return hashlib.sha256(b"".join(parts)).digest()

def number(value):
    return value.to_bytes(8, "big", signed=True)

def short(value):
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return bytes([size]) + value.to_bytes(size, "big", signed=True)

def text(value):
    return len(value.encode()).to_bytes(4, "big") + value.encode()

def blob(value):
    return (len(value) // 2).to_bytes(4, "big") + bytes.fromhex(value)

def optional(value, encode=bytes):
    return b"\0" if value is None else b"\1" + encode(value)

def value_digest(kind, columns):
    first, types = KINDS[kind]
    check(len(columns) == len(types), "a value has other columns")
    if kind == "policy":
        return sha(columns[0].encode())
    kinds = {"t": str, "i": int, "b": str}
    is_typed = (type(value) is kinds[type_.lower()] or value is None and type_.isupper()
                for type_, value in zip(types, columns))
    check(all(is_typed), "a value has a column of another type")
    encode = {"t": text, "i": number, "b": blob}
    encode |= {key.upper(): lambda value, e=e: optional(value, e) for key, e in encode.items()}
    return sha(first, *(encode[type](value) for type, value in zip(types, columns)))

def leaves(row, digest, record):
    salt, path = bytes.fromhex(row["salt"]), text(row["path"]) + optional(row["reading"], text)
    personal = digest(row["client"]) + digest(row["origin"]) + path
    check(len(salt) != 32 or personal == bytes(5), "a redacted row has more than its commitment")
    commitment = salt if len(salt) == 32 else sha(salt, personal)
    shared = [digest(row[name]) for name in ("crawler", "method", "ruling", "policy")]
    numbers = b"".join(short(row[name]) for name in ("seq", "time_us", "wait_ms"))
    context, snapshot = sha(b"C", record, *shared), optional(digest(row["snapshot"]))
    yield row["seq"], sha(b"D", numbers, commitment, context, snapshot)
    if end := row["ending"]:
        outcome = sha(b"O", record, optional(end["status"], number), number(end["sent"]),
                      optional(digest(end["directives"])), optional(digest(end["error"])))
        numbers = short(row["seq"]) + short(end["seq"]) + short(end["bytes"])
        yield end["seq"], sha(b"E", numbers, outcome)

def root(chosen, places, start, end, proof):
    if bisect_left(places, start) == bisect_left(places, end):
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
    result = (0, 1)
    for bit in bin(factor)[2:]:
        result = add(result, result)
        result = add(result, point) if bit == "1" else result
    return result

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
    name, _, encoded = key.split("+", 2)
    public = base64.b64decode(encoded)
    line = next(line for line in below.split("\n") if line.startswith(f"\u2014 {name} "))
    value = base64.b64decode(line.rsplit(" ", 1)[1])
    is_own = public[0] == 1 and value[:4] == sha(name.encode(), b"\n", public)[:4]
    check(is_own and is_signed(public[1:], f"{message}\n".encode(), value[4:]), "another signer")
    return message.split("\n")

def main(path, key=None):
    archive, digests, used, chosen, bodies = zipfile.ZipFile(path), [], set(), {}, set()
    head, own_key = (archive.read(name).decode() for name in ("head.txt", "key.txt"))
    check(key in (None, own_key.strip()), "key.txt has another key")
    lines = signed_lines(head, own_key.strip())
    rows = (json.loads(line, object_pairs_hook=object_of) for line in archive.open("rows.jsonl"))
    first, before = next(rows), 0
    check_form(first, FIRST)
    record = first["record"]
    check(lines[0] == f"politesse/{record}", "the head is that of another record")

    def digest(value):
        check(value is None or 0 <= value <= len(digests), "a row has a value that is not there")
        used.add(value)
        return digests[value - 1] if value else None if value is None else b""
    for row in rows:
        if "value" in row:
            check_form(row, VALUE)
            digests.append(value_digest(row["kind"], row["columns"]))
            check(row["value"] == len(digests), "a value has another number")
            bodies.update(filter(None, row["columns"][8:9]))  # of a snapshot
            continue
        check_form(row, ROW)
        check_form(row["ending"] or dict.fromkeys(ENDING, 0), ENDING)
        check(before < row["seq"], "the rows are in another order")
        before = row["seq"]
        for entry, leaf in leaves(row, digest, bytes.fromhex(record)):
            check(0 < entry and entry - 1 not in chosen, "two rows have one number")
            chosen[entry - 1] = leaf
    check(used - {0, None} == set(range(1, len(digests) + 1)), "no row has one of the values")
    proof = iter([bytes.fromhex(line) for line in archive.read("proof.txt").decode().split("\n")])
    size, expected = int(lines[1]), base64.b64decode(lines[2])
    found = chosen and root(chosen, sorted(chosen), 0, size, proof)
    is_all = found == expected and max(chosen) < size and next(proof, b"") == b""
    check(is_all and next(proof, None) is None, "a row, a value or proof.txt is not as it was")
    check_archive(path, archive, FILES | {f"robots/{body}" for body in bodies})
    is_own = (sha(archive.read(f"robots/{body}")).hex() == body for body in bodies)
    check(all(is_own), "a robots.txt is another")
    signer = "signed by the key" if key else "signer unknown: pass the public key"
    print(f"{len(chosen)} of {size} entries are on record as they stand here; {signer}; {lines[3]}")
    print("not checked: report.html and README.txt, what was asked for (the first line of "
          "rows.jsonl), and whether the verdicts follow from the robots.txt")
    return 0 if key else 3

if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:3]))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StopIteration,
            RuntimeError, NotImplementedError, OSError, zipfile.error) as error:
        print(f"does not fit: {error!r}")
        sys.exit(1)
