"""``--data FOLDER``: a training step on images of a folder, whose loading is a phase of its own."""

from dataclasses import replace

import numpy as np
import pytest

from commands import command
from jouletrace.errors import BadInputError, NotPossibleError
from jouletrace.workloads import ImageFolder, ImageLoader, ObjectWorkload, WorkloadOptions, resolve

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

TINY = {"num_hidden_layers": "1", "image_size": "32"}


@pytest.fixture
def folder(tmp_path):
    """Two classes: dark images and bright ones, of several forms; no two have the same pixels."""
    place = tmp_path / "data"
    drawn = np.random.default_rng(3)
    for name, value in (("bright", 250), ("dark", 5)):
        (place / name).mkdir(parents=True)
        for i, suffix in enumerate(("png", "jpg", "bmp")):
            pixels = np.clip(value + drawn.integers(-60, 61, (40 + i, 50, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / name / f"{i}.{suffix}")
    Image.fromarray(np.full((9, 9), 230, np.uint8)).save(place / "bright" / "grey.png")
    (place / "bright" / "notes.txt").write_text("not an image")
    return place


def built(folder, **changes):
    options = WorkloadOptions(task="train", batch=4, config=TINY, data=str(folder))
    return resolve("deit-t").build("cpu", replace(options, **changes))


def test_a_class_is_a_sub_folder_and_other_files_are_left_out(folder):
    found = ImageFolder.listed(folder)
    assert found.classes == ("bright", "dark")
    assert [number for _, number in found.files] == [0, 0, 0, 0, 1, 1, 1]


def test_batches_hold_the_images_with_their_labels_over_and_over(folder):
    loader = ImageLoader(ImageFolder.listed(folder), 5, (3, 8, 8), torch.float32, torch.device("cpu"))
    labels = []
    for _ in range(7):
        pixels, label = loader.batch()
        assert pixels.shape == (5, 3, 8, 8)
        bright = pixels.mean(dim=(1, 2, 3)) > 0
        assert torch.equal(bright, label == 0)
        labels += label.tolist()
    assert labels[:7].count(0) == 4
    assert labels[:7] == labels[7:14]
    assert labels[:7] != sorted(labels[:7]), "they are shuffled"


def test_a_model_that_takes_grey_images_gets_them(folder):
    loader = ImageLoader(ImageFolder.listed(folder), 2, (1, 8, 8), torch.float16, torch.device("cpu"))
    pixels, _ = loader.batch()
    assert (pixels.shape, pixels.dtype) == ((2, 1, 8, 8), torch.float16)
    with pytest.raises(BadInputError, match="the model takes 4"):
        ImageLoader(ImageFolder.listed(folder), 2, (4, 8, 8), torch.float16, torch.device("cpu"))


@pytest.mark.thorough
def test_a_step_trains_on_another_batch_each_time(folder):
    one = built(folder)
    losses = [float(one.call(0)) for _ in range(3)]
    assert all(np.isfinite(losses))
    assert len(set(losses)) == 3
    assert "7 images of 2 classes" in one.facts["data"]
    assert str(folder) in one.facts["inputs"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda place: place / "nowhere", "there is no such folder"),
        (lambda place: place / "bright" / "notes.txt", "it is a file"),
        (lambda place: place / "bright", "it needs a sub-folder for each class"),
        (lambda place: (place / "empty").mkdir() or place, "empty holds no image"),
    ],
)
def test_a_folder_that_is_no_data_is_refused_in_one_line(spoil, said, folder, capsys):
    place = spoil(folder)
    found = command(capsys, "profile", "deit-t", "--task", "train", "--device", "cpu", "--data", str(place))
    assert found.code == 2
    assert said in found.complaint
    assert str(place) in found.complaint


def test_an_image_that_cannot_be_decoded_is_named(folder):
    (folder / "dark" / "0.png").write_bytes(b"no image")
    loader = ImageLoader(ImageFolder.listed(folder), 7, (3, 8, 8), torch.float32, torch.device("cpu"))
    with pytest.raises(BadInputError, match=r"dark/0\.png can't be decoded"):
        loader.load(((), {}))


def test_more_classes_than_the_model_has_are_refused_with_the_way_out(folder):
    with pytest.raises(BadInputError, match="--config num_labels=2 makes room"):
        built(folder, config={**TINY, "num_labels": "1"})


@pytest.mark.thorough
def test_where_a_folder_makes_no_sense_it_is_refused(folder, capsys):
    with pytest.raises(BadInputError, match="--data is for --task train"):
        built(folder, task="infer")
    with pytest.raises(BadInputError, match="doesn't classify images"):
        resolve("bert-b").build(
            "cpu", WorkloadOptions(task="train", data=str(folder), config={"num_hidden_layers": "1"})
        )
    own = ObjectWorkload(torch.nn.Linear(2, 2), (torch.ones(1, 2),), name="mine")
    with pytest.raises(BadInputError, match="mine comes with its inputs"):
        own.build("cpu", WorkloadOptions(task="train", data=str(folder)))
    simulated = command(capsys, "profile", "deit-t", "--task", "train", "--device", "sim:h100", "--data", str(folder))
    assert "images can't be loaded" in simulated.complaint


def test_without_pil_its_package_is_named(folder, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(NotPossibleError, match="pip install pillow"):
        ImageLoader(ImageFolder.listed(folder), 2, (3, 8, 8), torch.float32, torch.device("cpu"))
