"""Prompts from templates: words in braces are replaced by entries of the lists, {n} and its like by numbers. Lists are
long and templates many, so that few prompts are alike."""
import re

LISTS = {
    "topic": """volcanoes; photosynthesis; the water cycle; gravity; black holes; the French Revolution; inflation;
        compound interest; vaccines; antibiotics; DNA; evolution; plate tectonics; ocean tides; rainbows; lightning;
        earthquakes; solar panels; wind turbines; batteries; electric cars; the internet; encryption; machine learning;
        neural networks; databases; operating systems; compilers; sorting algorithms; recursion; blockchain; GPS;
        satellites; telescopes; microscopes; the human heart; the immune system; sleep; dreams; memory; stress; exercise;
        vitamins; protein; sugar; coffee; tea; chocolate; bread baking; cheese making; fermentation; gardening; compost;
        bees; butterflies; birds of prey; whales; sharks; wolves; penguins; elephants; dinosaurs; fossils; glaciers;
        deserts; rainforests; coral reefs; climate change; recycling; plastics; steel; glass; concrete; bridges; tunnels;
        trains; airplanes; bicycles; sailing; hiking; camping; swimming; running; yoga; chess; music theory; jazz; opera;
        painting; sculpture; photography; film; theatre; poetry; novels; grammar; public speaking; negotiation; leadership;
        time management; budgeting; saving money; taxes; insurance; mortgages; stock markets; supply and demand; democracy;
        constitutions; human rights; the Roman Empire; ancient Egypt; the Renaissance; the Industrial Revolution; the Cold
        War; the Silk Road; the Vikings; maps; calendars; time zones; seasons; the moon; Mars; comets; atoms; chemical
        reactions; acids; magnets; electricity; light; sound; heat; pressure; friction; probability; statistics; prime
        numbers; fractions; triangles; logic; ethics; philosophy; psychology; linguistics; archaeology; architecture""",
    "thing": """a laptop; a mattress; running shoes; a camera; a backpack; a bicycle; a used car; a phone; headphones; a tent;
        a kitchen knife; a guitar; a desk chair; a winter coat; a water filter; a printer; a plant for a dark room; a gift
        for a teacher; a birthday present; a cookbook; a board game; a coffee machine; a lamp; a rug; a suitcase""",
    "skill": """play the guitar; speak Spanish; draw faces; cook pasta; swim; write code; type fast; paint with watercolours;
        knit; juggle; sing; dance; read music; meditate; bake bread; grow tomatoes; take good photos; play chess; write
        letters; manage a team; give a speech; save money; fix a bicycle; sew a button; iron a shirt; tie knots; ski; row""",
    "place": """Paris; Rome; Tokyo; New York; Berlin; Madrid; Vienna; Prague; Cairo; Istanbul; Athens; Dublin; Oslo; Sydney;
        Toronto; Mexico City; Rio de Janeiro; Cape Town; Bangkok; Singapore; Seoul; Delhi; Edinburgh; Amsterdam; Copenhagen""",
    "person": """my boss; my neighbour; a friend; my teacher; a customer; my landlord; a colleague; my grandmother; a doctor;
        the city council; a supplier; my brother; a new employee; the school; an old friend; the hotel""",
    "matter": """a late delivery; a broken heater; a missed meeting; a birthday party; a day off; a refund; a noisy dog; a
        recommendation; a job interview; a change of plans; an invoice; a lost key; a parking space; a school trip;
        a surprise visit; a promotion; a wrong order; a garden fence; thanks for help; an apology""",
    "food": """rice; lentils; potatoes; chicken; salmon; tofu; spinach; mushrooms; eggs; tomatoes; beans; cheese; apples;
        pumpkin; noodles; chickpeas; cabbage; carrots; zucchini; bread; lemons; yoghurt; onions; corn; peppers""",
    "audience": "a child; a beginner; a student; an expert; my grandmother; a ten year old; someone in a hurry; a class",
    "language": "Python; C; JavaScript; Java; Go; Rust; C++; TypeScript; Ruby; PHP; Bash; SQL; Haskell; Kotlin; Perl",
    "task": """reverses a string; counts the words of a text; finds the largest number in a list; checks whether a word is a
        palindrome; sorts a list of names; removes duplicates from a list; computes the factorial of a number; prints the
        Fibonacci numbers; reads a file line by line; parses a CSV file; converts Celsius to Fahrenheit; merges two sorted
        lists; finds the median; counts vowels; checks whether a number is prime; computes the greatest common divisor;
        rotates a matrix; flattens a nested list; finds the longest word; validates an e-mail address; generates a random
        password; formats a date; computes a moving average; finds all pairs with a given sum; implements a queue;
        implements a stack; implements a linked list; walks a binary tree; performs a binary search; implements bubble sort;
        implements quicksort; implements merge sort; draws a triangle of stars; downloads a web page; writes JSON to a file;
        counts the lines of all files in a folder; finds files larger than a limit; renames files; compresses a string;
        decodes a Caesar cipher; converts a number to binary; converts Roman numerals; plays rock paper scissors; simulates
        a dice; keeps a to-do list; computes the distance between two points; checks balanced parentheses; transposes a
        matrix; multiplies two matrices; finds the shortest path in a grid; groups anagrams; splits a list into chunks;
        caches results; retries a failing call; measures the time of a call; logs errors; parses command line options""",
    "name": "Anna; Ben; Clara; David; Emma; Felix; Grace; Henry; Iris; Jack; Kate; Leo; Maria; Noah; Olivia; Paul; Rosa; Tom",
    "goods": "apples; pencils; books; tickets; eggs; cookies; marbles; stamps; bottles; oranges; chairs; cards; flowers; cups",
    "hero": """the old fisherman; a young painter; the baker's daughter; a lonely king; two brothers; the night watchman; my
        uncle; a retired teacher; the lighthouse keeper; a lost dog; the new girl in class; an astronaut; the gardener;
        a travelling musician; the last dragon; a shy robot; the mayor; a tired nurse; the librarian; a runaway horse""",
    "scene": """on a cold morning in March; long before the war; at the edge of the village; in the middle of the night; on
        the first day of school; after the storm; under the old bridge; in a small town by the sea; when the train stopped;
        during the longest winter; at the market; in the empty theatre; behind the locked door; on the island; at sunset;
        in the year of the great flood; beneath the mountains; on the way home; in a kitchen full of smoke; at the station""",
    "event": """found a letter without a name; heard a voice; made a promise; lost everything; met a stranger; opened the
        box; decided to leave; saw the light; broke the silence; discovered a map; forgot the way; began to laugh; told the
        truth; missed the last boat; planted a tree; heard the bells; learned a secret; came back; said nothing; waited""",
    "mood": "sad; funny; mysterious; calm; hopeful; strange; warm; dark; short; simple; dramatic; poetic; honest; lively",
    "kind": "story; poem; letter; diary entry; essay; speech; fairy tale; dialogue; review; report; fable; scene; description",
    "table": "employees; orders; products; students; books; flights; invoices; users; visits; payments; tickets; rooms",
    "column": "name; price; day; city; amount; age; rating; quantity; status; department; country; weight",
    "noun": "items; values; names; scores; records; words; points; users; rows; files; nodes; prices; events; numbers; keys",
    "verb": "count; find; sort; filter; merge; parse; update; remove; convert; check; print; load; collect; compute; format",
}
LISTS = {k: [" ".join(x.split()) for x in v.split(";")] for k, v in LISTS.items()}

CHAT = """What is {topic}?|What are the basics of {topic}?|Explain {topic} to {audience}.|Why does {topic} matter?|
How did {topic} change the world?|Give me {k} interesting facts about {topic}.|Write a short summary of {topic}.|
What are the pros and cons of {topic}?|What is the difference between {topic} and {topic}?|How are {topic} and {topic} related?|
List {k} common mistakes about {topic}.|What should everybody know about {topic}?|How can I learn more about {topic}?|
Who should study {topic}, and why?|Tell me about the history of {topic}.|Write a quiz with {k} questions about {topic}.|
Can you recommend {k} books on {topic}?|How do I explain {topic} to {audience}?|What questions about {topic} are still open?|
How do I choose {thing}?|What should I look for when I buy {thing}?|Is it worth spending more money on {thing}?|
How much should {thing} cost?|How long does {thing} last, and how do I take care of it?|
What is the best way to {skill}?|How long does it take to {skill}?|I want to {skill}. Where do I start?|
Give me a plan of {k} weeks to {skill}.|What do I need to {skill}?|Why is it hard to {skill}?|
Plan {k} days in {place}.|What should I see in {place}?|What should I eat in {place}?|When is the best time to visit {place}?|
Is {place} better than {place} for a holiday with children?|How do people live in {place}?|What should I pack for {place}?|
Write an e-mail to {person} about {matter}.|Write a polite message to {person} about {matter}.|How do I talk to {person} about {matter}?|
Write a short note to {person}: {matter}.|What can I say to {person} after {matter}?|
What can I cook with {food}, {food} and {food}?|Give me a recipe with {food} and {food}.|How do I store {food}?|
Is {food} healthy?|Plan meals for {k} days with {food} and {food}.|What goes well with {food}?|How do I cook {food}?|
Write a {mood} {kind} about {hero}.|Write a {kind} about {topic}.|Give me {k} ideas for a {kind} about {hero}.|
Tell me a {mood} joke about {topic}.|Suggest {k} names for a cafe in {place}.|Suggest {k} titles for a {kind} about {topic}.|
I feel tired all day. What could help?|How can I sleep better?|How do I stay focused while I learn about {topic}?|
What is a good daily routine for somebody who wants to {skill}?|Rewrite this more politely: I need an answer about {matter} now.|
Translate into French: {hero} {event} {scene}.|Correct this sentence: {name} have {n} {goods} and want to {skill}.|
Make a table of {k} kinds of {topic} with a short note each.|Compare {place} and {place} in a few sentences.|
Hello, who are you?|Hi! Can you help me to {skill}?|What is the capital of the country in which {place} lies?|
Write {k} sentences that contain the word {food}.|What rhymes with {food}?|Which is larger, {n} or {m}?|
Give an example of {topic} in daily life.|Imagine you are {hero}. What do you think of {topic}?|
How do I write a {language} program that {task}?|What is {language} good for?|Should I learn {language} or {language}?|
Explain the steps of a program that {task}.""".replace("\n", "").split("|")

MATH = """What is {n} + {m}?|What is {n} * {k}? Show the steps.|Compute {n} - {m} + {k}.|What is {n} divided by {k}?|
What is {k}0 percent of {n}?|A price of {n} rises by {k} percent. What is the new price?|
Solve for x: {k}x + {j} = {n}.|Solve for x: {k}x - {j} = {i}x + {n}. Explain each step.|Solve x^2 - {sum}x + {product} = 0.|
Factor x^2 + {sum}x + {product}.|Expand (x + {k})(x - {j}).|What is the sum of the numbers from 1 to {n}?|
What is the area of a rectangle with the sides {k} and {j}?|What is the circumference of a circle of radius {k}?|
The legs of a right triangle are {k} and {j}. How long is the hypotenuse?|A cube has an edge of {k} cm. What are its volume and surface?|
{name} has {n} {goods} and gives {k} to {name}. How many are left?|{name} buys {k} {goods} for {j} euros each and pays with {n}00 euros. How much change is there?|
{name} is {k} years older than {name}. Together they are {n}. How old are they?|
A car drives {n} km in {k} hours. What is its speed?|A train leaves at {k} o'clock and drives {n} km at {m} km/h. When does it arrive?|
{k} workers need {j} days for a job. How long do {i} workers need?|How many seconds are in {k} hours and {j} minutes?|
Convert {n} miles to kilometres.|Convert {n} degrees Celsius to Fahrenheit.|Convert {n} to binary.|
What is the greatest common divisor of {n} and {m}?|What is the least common multiple of {k} and {j}?|Is {n} a prime number?|
Find the derivative of f(x) = {k}x^3 - {j}x^2 + {i}x.|Find the integral of {k}x^2 + {j}x.|What is the slope of the line through ({k}, {j}) and ({n}, {m})?|
What is the mean of {n}, {m}, {k} and {j}?|What is the median of {k}, {n}, {j}, {m} and {i}?|
Two dice are rolled. What is the probability that their sum is {j}?|How many ways are there to choose {i} {goods} out of {k}?|
A bag holds {k} red and {j} blue {goods}. What is the chance to draw a red one?|Simplify the fraction {n}/{m}.|Add {k}/{j} and {i}/{k}.|
What is {k} to the power of {i}?|What is the square root of {n}?|Round {n}.{m} to the nearest ten.|
{name} saves {k} euros a week. After how many weeks are there {n} euros?|A recipe for {k} people needs {n} grams of flour. How much is it for {j} people?|
Write {n} as a product of primes.|Which numbers come next: {k}, {sum}, ...? Explain a rule.|Explain how to add fractions with an example.|
If {k} {goods} cost {n} euros, what do {j} {goods} cost?|Explain why the angles of a triangle sum to 180 degrees.|
A tank holds {n} litres and loses {k} litres an hour. When is it empty?""".replace("\n", "").split("|")

PROSE = """{Scene}, {hero} {event}.|{Hero} {event} {scene}, and|{Scene}, when {hero}|It was {scene} that {hero} {event}.|
Nobody knew why {hero} {event}, but|Once upon a time, {hero}|The first thing that {hero} noticed was|Dear {name}, {scene} I|
Write a {mood} {kind} about {hero}.|Write a {kind} that begins {scene}.|Describe {hero} {scene}.|Describe {place} in a {mood} way.|
The history of {topic} is|An essay on {topic}.|{Topic}: an introduction.|There is something {mood} about {topic}:|
Most people believe that {topic}|When we think of {topic}, we|In this chapter we look at {topic}.|Few subjects are as {mood} as {topic}, and|
{Hero} had always wanted to {skill}, but|"I never wanted to {skill}," said {name},|{name} and {name} met {scene}.|
My first memory of {place} is|The streets of {place} were|In {place} there lived {hero} who|The letter from {place} said that|
A {kind} about {hero} who {event}.|Summarise the importance of {topic} in a few sentences.|The lesson that {hero} learned {scene} was|
The road to {place} was long, and {hero}|Every year, {scene}, {hero}|"{name}, wait!" cried {hero}.|The news about {topic} came {scene}.|
According to a new report on {topic},|The best way to {skill} is|How to {skill}: a guide for {audience}.|If you ever visit {place},""".replace("\n", "").split("|")

CODE = """Write a {language} function that {task}.|Write a {language} program that {task}, with comments.|
Write a {language} class that {task}, and show how to use it.|# A program that {task}\\n|# {task}\\ndef |
// This function {task}.\\nfunction |/* A function that {task}. */\\n|// A {language} program that {task}.\\n|
def {verb}_{noun}({noun}):\\n|def {verb}_{noun}({noun}, {column}):\\n    \"\"\"A function that {task}.\"\"\"\\n|
def {verb}_{noun}({noun}, limit={n}):\\n    |class {Noun}:\\n    def __init__(self, {column}, {column}):\\n|
int {verb}_{noun}(const int *{noun}, int n)\\n{\\n|struct {noun} *{verb}_{noun}(struct {noun} *{noun})\\n{\\n|
function {verb}{Noun}({noun}) {\\n|const {verb}{Noun} = ({noun}) => {\\n|fn {verb}_{noun}({noun}: &[i64]) -> i64 {\\n|
func {verb}{Noun}({noun} []int) int {\\n|public static int {verb}{Noun}(List<Integer> {noun}) {\\n|#!/bin/sh\\n# {task}\\n|
#!/usr/bin/env python3\\n"\"\"A program that {task}.\"\"\"\\nimport sys\\n|-- The {k} rows of {table} with the largest {column}\\nSELECT |
SELECT {column}, COUNT(*) FROM {table}|CREATE TABLE {table} (\\n    id INTEGER PRIMARY KEY,\\n    {column} |
A query for the sum of {column} of each {column} in {table}:\\n\\n|import {lib}\\n\\ndef {verb}_{noun}(path):\\n|
for i in range({n}):\\n    |{noun} = [{n}, {m}, {k}, {j}]\\n\\n# {task}\\n|#include <stdio.h>\\n\\n/* {task} */\\nint main(void)\\n{\\n|
Explain what this code does:\\n\\ndef {verb}_{noun}({noun}):\\n    return [x for x in {noun} if x > {n}]\\n\\n|
Rewrite this with the variable `{noun}` renamed to `{column}`:\\n\\ndef {verb}({noun}):\\n    out = []\\n    for x in {noun}:\\n        out.append(x + {n})\\n    return out\\n\\nRewritten:\\n\\n|
Write tests for a function {verb}_{noun} that {task}.|{"{column}": "{name}", "{noun}": [|<html>\\n<head>\\n<title>{Topic}</title>\\n|
.{noun} {\\n    color: |Makefile:\\n\\nall: {noun}\\n|test('{verb} {noun}', () => {\\n|assert {verb}_{noun}([{n}, {m}]) == """
CODE = [c.replace("\\n", "\n").replace('"\\"\\"', '"""').replace('\\"', '"')
        for c in CODE.replace("|\n", "|").split("|")]
LISTS["lib"] = "os; sys; json; csv; re; random; math; datetime; collections; itertools".split("; ")
TEMPLATES = {"code": CODE, "chat": CHAT, "math": MATH, "prose": PROSE}


def make(name, rng):
    """One prompt of a set. In code a word stays what it is throughout the prompt."""
    chosen = {}
    small = {"i": rng.randint(2, 6), "j": rng.randint(2, 12), "k": rng.randint(3, 15), "n": rng.randint(20, 990),
             "m": rng.randint(11, 300)}
    a, b = rng.randint(1, 9), rng.randint(1, 9)
    numbers = dict(small, sum=a + b, product=a * b)

    def fill(match):
        key = match.group(1)
        if key in numbers:
            return str(numbers[key])
        if key.lower() not in LISTS:
            return match.group(0)
        word = rng.choice(LISTS[key.lower()])
        if name == "code":
            word = chosen.setdefault(key.lower(), word)
        return word[0].upper() + word[1:] if key[0].isupper() else word
    return re.sub(r"\{(\w+)\}", fill, rng.choice(TEMPLATES[name]))
