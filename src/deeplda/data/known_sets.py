"""The known data sets: their download addresses, checksums and class names.

To add a data set, add an entry to `KNOWN_SETS`. If its files have a new format, write a subclass of `KnownSet` as well.
"""

from __future__ import annotations

import numpy as np

from deeplda.data.cifar import Cifar10, Cifar10N, Cifar100
from deeplda.data.dataset import Part, Source
from deeplda.data.layouts import KnownSet, Mnist, RemoteFile, Stl10


def read_digits() -> Source:
    """Read scikit-learn's digits: 1,797 greyscale images as uint8, N x 1 x 8 x 8, scaled from 0..16 to 0..255."""
    from sklearn.datasets import load_digits  # importing this takes over a second

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    return Source("digits", Part(images, bunch.target.astype(np.int64)), tuple("0123456789"))


_CIFAR100_CLASSES = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
    "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup "
    "dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower "
    "leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid "
    "otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray "
    "road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
    "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle "
    "wardrobe whale willow_tree wolf woman worm"
)
_CIFAR10 = Cifar10(
    "cifar10",
    folders=("cifar-10-batches-bin",),
    class_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    class_names_file="batches.meta.txt",
    val_share=0.04,  # the paper uses 2,000 of 50,000
    url="https://www.cs.toronto.edu/~kriz/",
    downloads={
        "cifar-10-binary.tar.gz": RemoteFile(
            170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
        )
    },
    unpacked_bytes=200_000_000,
)
_SETS: tuple[KnownSet, ...] = (
    _CIFAR10,
    Cifar10N.of(_CIFAR10, "cifar10n-aggregate", "aggre_label"),
    Cifar10N.of(_CIFAR10, "cifar10n-random1", "random_label1"),
    Cifar10N.of(_CIFAR10, "cifar10n-worst", "worse_label"),
    Cifar100(
        "cifar100",
        folders=("cifar-100-binary",),
        class_names=tuple(_CIFAR100_CLASSES.split()),
        class_names_file="fine_label_names.txt",
        val_share=0.1,
        url="https://www.cs.toronto.edu/~kriz/",
        downloads={
            "cifar-100-binary.tar.gz": RemoteFile(
                168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"
            )
        },
        unpacked_bytes=200_000_000,
    ),
    Stl10(
        "stl10",
        folders=("stl10_binary",),
        class_names=("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"),
        class_names_file="class_names.txt",
        val_share=0.2,  # the paper uses 1,000 of 5,000
        url="https://ai.stanford.edu/~acoates/stl10/",
        downloads={
            "stl10_binary.tar.gz": RemoteFile(
                2_640_397_119, "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866"
            )
        },
        unpacked_bytes=3_300_000_000,
    ),
    Mnist(
        "mnist",
        folders=("mnist", "MNIST/raw"),
        class_names=tuple("0123456789"),
        val_share=0.1,
        url="https://ossci-datasets.s3.amazonaws.com/mnist/",
        downloads={
            "train-images-idx3-ubyte.gz": RemoteFile(
                9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
            ),
            "train-labels-idx1-ubyte.gz": RemoteFile(
                28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
            ),
            "t10k-images-idx3-ubyte.gz": RemoteFile(
                1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
            ),
            "t10k-labels-idx1-ubyte.gz": RemoteFile(
                4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
            ),
        },
    ),
    Mnist(
        "fashion-mnist",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        class_names=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        val_share=0.1,
        url="https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        downloads={
            "train-images-idx3-ubyte.gz": RemoteFile(
                26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"
            ),
            "train-labels-idx1-ubyte.gz": RemoteFile(
                29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"
            ),
            "t10k-images-idx3-ubyte.gz": RemoteFile(
                4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"
            ),
            "t10k-labels-idx1-ubyte.gz": RemoteFile(
                5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"
            ),
        },
    ),
)
KNOWN_SETS: dict[str, KnownSet] = {known.name: known for known in _SETS}
